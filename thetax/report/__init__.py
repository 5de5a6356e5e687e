"""A trained model or a set of claims as one HTML file.

`look(outcome, folder)` runs every lens that applies and writes the page, `look_at_fit(run)` shows what the folder of a
fit holds by itself; `Verdicts` is the page of a set of claims.

A lens is one registration in `lenses`; its figure is what `thetax.plot.draw` makes of its result.
"""

from . import attack as attack
from . import attacked as attacked
from . import attention as attention
from . import descent as descent
from . import geometry as geometry
from . import images as images
from . import processes as processes
from . import regularisers as regularisers
from . import tangent as tangent
from . import text as text
from . import time as time
from .fit import MORE as MORE
from .fit import look_at_fit as look_at_fit
from .lenses import LENSES as LENSES
from .lenses import Lens as Lens
from .lenses import lens as lens
from .look import look as look
from .tuning import report_search as report_search
from .verdicts import Verdicts as Verdicts
