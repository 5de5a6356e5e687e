"""Reports as single HTML files: on a trained model, on a fit, on a search, on the claims.

`look(outcome, folder)` runs every lens that applies to a trained model and writes the report;
`look_at_fit(run)` reports on the folder of a fit alone; `report_search` on a hyperparameter search;
`ClaimsPage` on the claims of the course.

To add a section to every report, register a function with `@lens(...)`.
"""

from . import lenses as lenses
from .claims_page import ClaimsPage as ClaimsPage
from .fit_page import NO_MODEL_NOTE as NO_MODEL_NOTE
from .fit_page import look_at_fit as look_at_fit
from .look import look as look
from .registry import LENSES as LENSES
from .registry import Lens as Lens
from .registry import lens as lens
from .tuning_page import report_search as report_search

__all__ = [
    "LENSES",
    "NO_MODEL_NOTE",
    "ClaimsPage",
    "Lens",
    "lens",
    "look",
    "look_at_fit",
    "report_search",
]
