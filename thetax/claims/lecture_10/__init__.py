"""Lecture 10, fundamentals: shallow and deep networks, descent, back-propagation, regularisation,
exercises.
"""

from . import activation_exercises as activation_exercises
from . import activations as activations
from . import backprop as backprop
from . import backprop_exercise as backprop_exercise
from . import cost as cost
from . import decay as decay
from . import deep as deep
from . import descent as descent
from . import dropout as dropout
from . import minima as minima
from . import minimum_norm as minimum_norm
from . import mnist as mnist
from . import overfit as overfit
from . import regularise as regularise
from . import reviews as reviews
from . import risk as risk
from . import series as series
from . import shallow as shallow
from . import stochastic as stochastic
from . import tables as tables
from . import tuning as tuning
from . import universal as universal
from . import xor as xor
