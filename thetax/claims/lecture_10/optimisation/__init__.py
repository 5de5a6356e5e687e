"""Lecture 10, §3, exercises 3 and 4: the empirical risk, gradient descent, backpropagation."""

from . import backprop as backprop
from . import backprop_exercise as backprop_exercise
from . import cost as cost
from . import descent as descent
from . import minima as minima
from . import minimum_norm as minimum_norm
from . import risk as risk
from . import stochastic as stochastic
