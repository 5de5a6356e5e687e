"""Chapter 8, tricks of the trade: initialisation, weight decay, early stopping, dropout,
normalisation, label smoothing, distillation.
"""

from . import augmentation as augmentation
from . import batch_norm as batch_norm
from . import decay as decay
from . import depth as depth
from . import distillation as distillation
from . import dropout as dropout
from . import initialisation as initialisation
from . import labels as labels
from . import normalisation as normalisation
from . import quadratic as quadratic
from . import stopping as stopping
from . import weight_norm as weight_norm
