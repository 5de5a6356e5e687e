"""Layers assembled into networks, one network a file.

A model maps one example to its output and may be called with a key; it is trained by any objective,
seen by any lens, and saved by its leaves alone.
"""

from .mlp import MLP as MLP
from .regression import least_squares as least_squares
from .regression import linear_regression as linear_regression
from .regression import logistic_regression as logistic_regression
from .regression import multinomial_regression as multinomial_regression
from .regression import ridge as ridge
