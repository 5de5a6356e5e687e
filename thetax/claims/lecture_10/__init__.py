"""Lecture 10, fundamentals: shallow and deep networks, gradient descent, backpropagation,
regularisation, exercises.
"""

from . import generalisation as generalisation
from . import networks as networks
from . import optimisation as optimisation
