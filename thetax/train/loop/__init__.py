"""The training loop: `fit`, checkpoints, run folders, progress, interruption."""

from .compiled import evaluate as evaluate
from .fit import Diverged as Diverged
from .fit import Fit as Fit
from .fit import fit as fit
from .progress import Bar as Bar
from .progress import JsonLines as JsonLines
from .progress import Lines as Lines
from .progress import Progress as Progress
from .progress import Silent as Silent
from .progress import watch as watch
from .run import Run as Run
from .run import versions as versions
