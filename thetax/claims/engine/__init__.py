"""The engine of claims: what a claim and a check are, how claims run, and the pages made of
them.
"""

from .check import Check as Check
from .check import Method as Method
from .check import at_least as at_least
from .check import at_most as at_most
from .check import between as between
from .check import close as close
from .check import equal as equal
from .check import falls as falls
from .check import likely as likely
from .check import refuted as refuted
from .check import rises as rises
from .check import within as within
from .claim import Claim as Claim
from .claim import Scale as Scale
from .claim import Verdict as Verdict
from .claim import claim as claim
from .claim import erratum as erratum
from .claim import find_claims as find_claims
from .course import CHAPTERS as CHAPTERS
from .course import Coverage as Coverage
from .course import coverage as coverage
from .course import heading as heading
from .course import rows as rows
from .verify import PRINTED as PRINTED
from .verify import Finding as Finding
from .verify import settle as settle
from .verify import verify as verify
