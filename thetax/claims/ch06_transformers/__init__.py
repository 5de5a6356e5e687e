"""Chapter 6, transformers: attention and its heads, positions, encoder and decoder, tokens and
BERT, images as patches, long sequences.
"""

from . import attention as attention
from . import bert as bert
from . import bert_pretraining as bert_pretraining
from . import bert_tasks as bert_tasks
from . import blocks as blocks
from . import cost as cost
from . import experiments as experiments
from . import figures as figures
from . import heads as heads
from . import long as long
from . import positions as positions
from . import translation as translation
from . import vision as vision
from . import words as words
