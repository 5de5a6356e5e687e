"""What is guaranteed: how many labellings a class of functions can make, how many regions a network
can have.
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
from .certified import ramp_objective as ramp_objective
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
