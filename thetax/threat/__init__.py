"""Threat models, shared by attacks and certificates: balls around an input, norms, the box of valid
inputs.
"""

from .ball import L0 as L0
from .ball import L1 as L1
from .ball import L2 as L2
from .ball import Ball as Ball
from .ball import Linf as Linf
from .ball import perturbation_bounds as perturbation_bounds
from .norm import p_norm as p_norm
from .norm import p_steepest as p_steepest

__all__ = [
    "L0",
    "L1",
    "L2",
    "Ball",
    "Linf",
    "p_norm",
    "p_steepest",
    "perturbation_bounds",
]
