"""Sound bounds on the outputs of a network over a box or a ball: interval bound propagation (IBP)
and linear bounds (CROWN).
"""

from .interval import interval_bounds as interval_bounds
from .linear_bounds import linear_bounds as linear_bounds
