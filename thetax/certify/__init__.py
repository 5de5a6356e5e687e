"""Certificates: bounds on the outputs of a network, certified accuracy and radii, randomised
smoothing, the capacity of linear classifiers, and counts of linear regions.
"""

from .bounds import interval_bounds as interval_bounds
from .bounds import linear_bounds as linear_bounds
from .capacity import cover_count as cover_count
from .capacity import cover_fraction as cover_fraction
from .capacity import dichotomies as dichotomies
from .capacity import in_general_position as in_general_position
from .certificates import CertifiedRadii as CertifiedRadii
from .certified import CertifiedAccuracy as CertifiedAccuracy
from .certified import certified_accuracy as certified_accuracy
from .certified import certified_margins as certified_margins
from .certified import interval_cross_entropy as interval_cross_entropy
from .certified import scheduled_objective as scheduled_objective
from .region_bounds import fold_network as fold_network
from .region_bounds import montufar_bound as montufar_bound
from .region_bounds import region_upper_bound as region_upper_bound
from .region_bounds import zaslavsky_bound as zaslavsky_bound
from .robustness_curve import RobustnessCurves as RobustnessCurves
from .robustness_curve import certified_radii as certified_radii
from .smoothing import SmoothedPredictions as SmoothedPredictions
from .smoothing import clopper_pearson_lower_bound as clopper_pearson_lower_bound
from .smoothing import gaussian_noise as gaussian_noise
from .smoothing import randomised_smoothing as randomised_smoothing
from .smoothing import vote_counts as vote_counts

__all__ = [
    "CertifiedAccuracy",
    "CertifiedRadii",
    "RobustnessCurves",
    "SmoothedPredictions",
    "certified_accuracy",
    "certified_margins",
    "certified_radii",
    "clopper_pearson_lower_bound",
    "cover_count",
    "cover_fraction",
    "dichotomies",
    "fold_network",
    "gaussian_noise",
    "in_general_position",
    "interval_bounds",
    "interval_cross_entropy",
    "linear_bounds",
    "montufar_bound",
    "randomised_smoothing",
    "region_upper_bound",
    "scheduled_objective",
    "vote_counts",
    "zaslavsky_bound",
]
