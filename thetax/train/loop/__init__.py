"""The training loop: `fit`, checkpoints, run folders, progress, interruption."""

from .compiled import evaluate as evaluate
from .fit import DivergenceError as DivergenceError
from .fit import FitResult as FitResult
from .fit import fit as fit
from .progress import JsonLines as JsonLines
from .progress import Progress as Progress
from .progress import ProgressBar as ProgressBar
from .progress import ProgressLines as ProgressLines
from .progress import Silent as Silent
from .progress import default_progress as default_progress
from .run import Run as Run
from .run import versions as versions
