"""Chapter 5, recurrent networks: backpropagation through time, gates, linear recurrences, and
sequence-to-sequence models.
"""

from . import attention as attention
from . import bptt as bptt
from . import cost as cost
from . import gates as gates
from . import linear as linear
from . import long_range as long_range
from . import lru as lru
from . import ngrams as ngrams
from . import stable as stable
from . import state_space as state_space
from . import tokens as tokens
from . import unrolled as unrolled
from . import vanishing as vanishing
from . import wired as wired
