"""From $\\theta_0$ to $\\theta^*$: losses, objectives made of objectives, descent, and the loop
that runs it.

`fit(descend(cross_entropy, optax.adam(1e-3)), model, data, epochs=10, key=key)` is the whole of it;
a `Run` makes it survive a crash. Orbax is imported only by a fit that has a run.
"""

from .io import PretrainedModel as PretrainedModel
from .io import load_pretrained as load_pretrained
from .io import load_weights as load_weights
from .io import read_config as read_config
from .io import save_pretrained as save_pretrained
from .io import save_weights as save_weights
from .loop import DivergenceError as DivergenceError
from .loop import FitResult as FitResult
from .loop import JsonLines as JsonLines
from .loop import Progress as Progress
from .loop import ProgressBar as ProgressBar
from .loop import ProgressLines as ProgressLines
from .loop import Run as Run
from .loop import Silent as Silent
from .loop import default_progress as default_progress
from .loop import evaluate as evaluate
from .loop import fit as fit
from .loop import versions as versions
from .objectives import batch_mean as batch_mean
from .objectives import bert_pretraining as bert_pretraining
from .objectives import binary_cross_entropy as binary_cross_entropy
from .objectives import binary_error_rate as binary_error_rate
from .objectives import binary_log_loss as binary_log_loss
from .objectives import binary_zero_one_loss as binary_zero_one_loss
from .objectives import bleu as bleu
from .objectives import cross_entropy as cross_entropy
from .objectives import distil as distil
from .objectives import distillation_loss as distillation_loss
from .objectives import error_rate as error_rate
from .objectives import lasso as lasso
from .objectives import log_loss as log_loss
from .objectives import masked_cross_entropy as masked_cross_entropy
from .objectives import masked_error_rate as masked_error_rate
from .objectives import mixed_precision as mixed_precision
from .objectives import next_sentence_error_rate as next_sentence_error_rate
from .objectives import per_token as per_token
from .objectives import sequence_error_rate as sequence_error_rate
from .objectives import smooth_labels as smooth_labels
from .objectives import soften_labels as soften_labels
from .objectives import span_cross_entropy as span_cross_entropy
from .objectives import span_error_rate as span_error_rate
from .objectives import span_loss as span_loss
from .objectives import span_zero_one_loss as span_zero_one_loss
from .objectives import squared_error as squared_error
from .objectives import squared_loss as squared_loss
from .objectives import token_cross_entropy as token_cross_entropy
from .objectives import token_error_rate as token_error_rate
from .objectives import weight_decay as weight_decay
from .objectives import with_augmentation as with_augmentation
from .objectives import with_orthogonal_transform as with_orthogonal_transform
from .objectives import zero_one_loss as zero_one_loss
from .optimisers import AveragedState as AveragedState
from .optimisers import Backprop as Backprop
from .optimisers import DescentState as DescentState
from .optimisers import EnsembleState as EnsembleState
from .optimisers import GradientFlow as GradientFlow
from .optimisers import Moments as Moments
from .optimisers import NesterovState as NesterovState
from .optimisers import StepInfo as StepInfo
from .optimisers import adagrad as adagrad
from .optimisers import adam as adam
from .optimisers import backpropagate as backpropagate
from .optimisers import descend as descend
from .optimisers import ema as ema
from .optimisers import gradient_flow as gradient_flow
from .optimisers import heavy_ball as heavy_ball
from .optimisers import ista as ista
from .optimisers import nesterov as nesterov
from .optimisers import nesterov_iterate as nesterov_iterate
from .optimisers import per_member as per_member
from .optimisers import rmsprop as rmsprop
from .optimisers import soft_threshold as soft_threshold
from .optimisers import swa as swa
from .optimisers import uncorrected_adam as uncorrected_adam
from .tuning import Choice as Choice
from .tuning import CrossValidationResult as CrossValidationResult
from .tuning import Fold as Fold
from .tuning import OneStandardErrorResult as OneStandardErrorResult
from .tuning import Range as Range
from .tuning import Setting as Setting
from .tuning import Trial as Trial
from .tuning import TuningProgress as TuningProgress
from .tuning import TuningResult as TuningResult
from .tuning import TuningTask as TuningTask
from .tuning import cross_validate as cross_validate
from .tuning import k_folds as k_folds
from .tuning import one_standard_error_rule as one_standard_error_rule
from .tuning import tune as tune

__all__ = [
    "AveragedState",
    "Backprop",
    "Choice",
    "CrossValidationResult",
    "DescentState",
    "DivergenceError",
    "EnsembleState",
    "FitResult",
    "Fold",
    "GradientFlow",
    "JsonLines",
    "Moments",
    "NesterovState",
    "OneStandardErrorResult",
    "PretrainedModel",
    "Progress",
    "ProgressBar",
    "ProgressLines",
    "Range",
    "Run",
    "Setting",
    "Silent",
    "StepInfo",
    "Trial",
    "TuningProgress",
    "TuningResult",
    "TuningTask",
    "adagrad",
    "adam",
    "backpropagate",
    "batch_mean",
    "bert_pretraining",
    "binary_cross_entropy",
    "binary_error_rate",
    "binary_log_loss",
    "binary_zero_one_loss",
    "bleu",
    "cross_entropy",
    "cross_validate",
    "default_progress",
    "descend",
    "distil",
    "distillation_loss",
    "ema",
    "error_rate",
    "evaluate",
    "fit",
    "gradient_flow",
    "heavy_ball",
    "ista",
    "k_folds",
    "lasso",
    "load_pretrained",
    "load_weights",
    "log_loss",
    "masked_cross_entropy",
    "masked_error_rate",
    "mixed_precision",
    "nesterov",
    "nesterov_iterate",
    "next_sentence_error_rate",
    "one_standard_error_rule",
    "per_member",
    "per_token",
    "read_config",
    "rmsprop",
    "save_pretrained",
    "save_weights",
    "sequence_error_rate",
    "smooth_labels",
    "soft_threshold",
    "soften_labels",
    "span_cross_entropy",
    "span_error_rate",
    "span_loss",
    "span_zero_one_loss",
    "squared_error",
    "squared_loss",
    "swa",
    "token_cross_entropy",
    "token_error_rate",
    "tune",
    "uncorrected_adam",
    "versions",
    "weight_decay",
    "with_augmentation",
    "with_orthogonal_transform",
    "zero_one_loss",
]
