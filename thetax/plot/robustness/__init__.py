"""Figures of attacks and certificates."""

from . import adversarial_example as adversarial_example
from . import attack as attack
from . import certificates as certificates
