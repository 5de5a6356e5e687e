"""Lecture 10, §1 and §2, exercises 1 and 2: activations, shallow and deep networks, and what they
can represent.
"""

from . import activation_exercises as activation_exercises
from . import activations as activations
from . import deep as deep
from . import shallow as shallow
from . import universal as universal
from . import xor as xor
