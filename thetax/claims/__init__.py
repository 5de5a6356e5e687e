"""The statements of the course as claims that run and are checked; one folder per chapter.

`thetax verify` runs them in parallel, `find_claims` finds them, `run_claim` runs one. To add a
claim, write one function under `@claim` in the folder of its chapter. The errata of the notes are
claims under `@erratum`.
"""

from .engine import CHAPTERS as CHAPTERS
from .engine import PRINTED as PRINTED
from .engine import Check as Check
from .engine import Claim as Claim
from .engine import Coverage as Coverage
from .engine import Finding as Finding
from .engine import Method as Method
from .engine import Scale as Scale
from .engine import Verdict as Verdict
from .engine import at_least as at_least
from .engine import at_most as at_most
from .engine import between as between
from .engine import claim as claim
from .engine import close as close
from .engine import close_derivative as close_derivative
from .engine import coverage as coverage
from .engine import decreasing as decreasing
from .engine import equal as equal
from .engine import erratum as erratum
from .engine import find_claims as find_claims
from .engine import heading as heading
from .engine import increasing as increasing
from .engine import not_rejected as not_rejected
from .engine import refuted as refuted
from .engine import rows as rows
from .engine import run_claim as run_claim
from .engine import verify as verify
from .engine import within as within

__all__ = [
    "CHAPTERS",
    "PRINTED",
    "Check",
    "Claim",
    "Coverage",
    "Finding",
    "Method",
    "Scale",
    "Verdict",
    "at_least",
    "at_most",
    "between",
    "claim",
    "close",
    "close_derivative",
    "coverage",
    "decreasing",
    "equal",
    "erratum",
    "find_claims",
    "heading",
    "increasing",
    "not_rejected",
    "refuted",
    "rows",
    "run_claim",
    "verify",
    "within",
]
