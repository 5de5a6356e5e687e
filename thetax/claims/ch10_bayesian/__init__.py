"""Chapter 10, Bayesian learning: Gaussian processes, and their relation to infinitely wide
networks.
"""

from . import linear_units as linear_units
from . import nngp as nngp
from . import processes as processes
from . import wide_regression as wide_regression
