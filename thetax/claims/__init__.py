"""The course, executable: every statement a claim that runs and is checked, one folder a chapter.

`thetax verify` runs them, `find_claims` finds them, `settle` runs one here. A claim is added by one
function under `@claim` in its chapter's folder; the errata of the notes are claims of their own,
under `@erratum`.
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
from .engine import coverage as coverage
from .engine import equal as equal
from .engine import erratum as erratum
from .engine import falls as falls
from .engine import find_claims as find_claims
from .engine import heading as heading
from .engine import likely as likely
from .engine import refuted as refuted
from .engine import rises as rises
from .engine import rows as rows
from .engine import settle as settle
from .engine import verify as verify
from .engine import within as within
