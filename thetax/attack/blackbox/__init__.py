"""Black-box attacks: Square needs scores, HopSkipJump labels only."""

from .hop_skip_jump import HopSkipJump as HopSkipJump
from .square import Square as Square
