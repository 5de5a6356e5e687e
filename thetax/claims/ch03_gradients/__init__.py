"""Chapter 3, gradient-based learning: backpropagation, gradient descent and its convergence rates,
momentum, adaptive step sizes, SGD.
"""

from . import adaptive as adaptive
from . import autodiff as autodiff
from . import backprop as backprop
from . import descent as descent
from . import momentum as momentum
from . import rates as rates
from . import smoothness as smoothness
from . import stochastic as stochastic
