"""Lecture 10, §4 to §6, exercises 5 and 6: regularisation, model selection, and real data."""

from . import decay as decay
from . import dropout as dropout
from . import mnist as mnist
from . import overfit as overfit
from . import regularise as regularise
from . import reviews as reviews
from . import series as series
from . import tables as tables
from . import tuning as tuning
