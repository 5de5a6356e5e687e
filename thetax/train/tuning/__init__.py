"""Hyper-parameter search and cross-validation."""

from .cross_validation import Fold as Fold
from .cross_validation import Validation as Validation
from .cross_validation import cross_validate as cross_validate
from .cross_validation import folds as folds
from .one_standard_error import Simplest as Simplest
from .one_standard_error import choose_simplest as choose_simplest
from .parallel import Task as Task
from .search_space import Choice as Choice
from .search_space import Range as Range
from .search_space import Setting as Setting
from .trial_table import Standing as Standing
from .trial_table import Trial as Trial
from .tune import Tuned as Tuned
from .tune import tune as tune
