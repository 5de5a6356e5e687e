"""Hyper-parameter search and cross-validation."""

from .cross_validation import CrossValidationResult as CrossValidationResult
from .cross_validation import Fold as Fold
from .cross_validation import cross_validate as cross_validate
from .cross_validation import k_folds as k_folds
from .one_standard_error import OneStandardErrorResult as OneStandardErrorResult
from .one_standard_error import one_standard_error_rule as one_standard_error_rule
from .parallel import TuningTask as TuningTask
from .search_space import Choice as Choice
from .search_space import Range as Range
from .search_space import Setting as Setting
from .trial_table import Trial as Trial
from .trial_table import TuningProgress as TuningProgress
from .tune import TuningResult as TuningResult
from .tune import tune as tune
