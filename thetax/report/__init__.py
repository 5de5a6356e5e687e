"""A trained model as one HTML file: `look(outcome, folder)` runs every lens that applies and writes the page.

A lens is one registration in `lenses`; its figure is what `thetax.plot.draw` makes of its result.
"""

from .lenses import LENSES as LENSES
from .lenses import Lens as Lens
from .lenses import lens as lens
from .look import look as look
