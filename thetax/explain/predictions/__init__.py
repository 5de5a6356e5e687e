"""Predictions examined: calibration, mistakes, uncertainty, decision boundaries, feature
importance.
"""

from .calibration import Calibration as Calibration
from .calibration import calibration as calibration
from .decision_boundary import Boundary as Boundary
from .decision_boundary import boundary as boundary
from .interval_coverage import Intervals as Intervals
from .interval_coverage import intervals as intervals
from .mc_dropout import DropoutBelief as DropoutBelief
from .mc_dropout import DropoutPenalty as DropoutPenalty
from .mc_dropout import dropout_average as dropout_average
from .mc_dropout import dropout_belief as dropout_belief
from .mc_dropout import dropout_penalty as dropout_penalty
from .mistakes import Confusion as Confusion
from .mistakes import Worst as Worst
from .mistakes import confusion as confusion
from .mistakes import worst as worst
from .permutation_importance import Importance as Importance
from .permutation_importance import importance as importance
from .uncertainty import Doubt as Doubt
from .uncertainty import doubt as doubt
from .version_space import Cone as Cone
from .version_space import Margins as Margins
from .version_space import Volume as Volume
from .version_space import hyperplane as hyperplane
from .version_space import in_version_space as in_version_space
from .version_space import margins as margins
from .version_space import version_cone as version_cone
from .version_space import version_volume as version_volume
