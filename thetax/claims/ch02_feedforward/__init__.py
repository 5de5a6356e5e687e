"""Chapter 2, feed-forward networks: regression, layers, residual connections, approximation, linear
regions.
"""

from . import approximation as approximation
from . import barron as barron
from . import folds as folds
from . import layers as layers
from . import logistic as logistic
from . import mlp as mlp
from . import piecewise as piecewise
from . import regions as regions
from . import regression as regression
from . import residual as residual
from . import risk as risk
