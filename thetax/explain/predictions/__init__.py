"""Predictions: calibration, confusion matrix, uncertainty (MC dropout), decision boundaries,
permutation importance.
"""

from .calibration import Calibration as Calibration
from .calibration import calibration as calibration
from .decision_boundary import DecisionBoundary as DecisionBoundary
from .decision_boundary import decision_boundary as decision_boundary
from .interval_coverage import IntervalCoverage as IntervalCoverage
from .interval_coverage import interval_coverage as interval_coverage
from .mc_dropout import DropoutPenalty as DropoutPenalty
from .mc_dropout import MCDropout as MCDropout
from .mc_dropout import dropout_average as dropout_average
from .mc_dropout import dropout_penalty as dropout_penalty
from .mc_dropout import mc_dropout as mc_dropout
from .mistakes import ConfidentMistakes as ConfidentMistakes
from .mistakes import ConfusionMatrix as ConfusionMatrix
from .mistakes import confident_mistakes as confident_mistakes
from .mistakes import confusion_matrix as confusion_matrix
from .permutation_importance import PermutationImportance as PermutationImportance
from .permutation_importance import permutation_importance as permutation_importance
from .uncertainty import DropoutUncertainty as DropoutUncertainty
from .uncertainty import dropout_uncertainty as dropout_uncertainty
from .version_space import Margins as Margins
from .version_space import VersionCone as VersionCone
from .version_space import VersionVolume as VersionVolume
from .version_space import hyperplane as hyperplane
from .version_space import in_version_space as in_version_space
from .version_space import margins as margins
from .version_space import version_cone as version_cone
from .version_space import version_volume as version_volume
