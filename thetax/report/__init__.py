"""A trained model or a set of claims as one HTML file.

`look(outcome, folder)` runs every lens that applies and writes the page, `look_at_fit(run)` shows
what the folder of a fit holds by itself; `ClaimsPage` is the page of a set of claims.

A lens is one registration in `lenses`; its figure is what `thetax.plot.draw` makes of its result.
"""

from . import lenses as lenses
from .claims_page import ClaimsPage as ClaimsPage
from .fit_page import MORE as MORE
from .fit_page import look_at_fit as look_at_fit
from .look import look as look
from .registry import LENSES as LENSES
from .registry import Lens as Lens
from .registry import lens as lens
from .tuning_page import report_search as report_search
