"""What is guaranteed: how many labellings a class of functions can make, how many regions a network
can have.
"""

from .bounds import interval_bounds as interval_bounds
from .bounds import linear_bounds as linear_bounds
from .capacity import cover_count as cover_count
from .capacity import cover_fraction as cover_fraction
from .capacity import dichotomies as dichotomies
from .capacity import general_position as general_position
from .certificates import Certificates as Certificates
from .certified import Certified as Certified
from .certified import certified as certified
from .certified import interval_cross_entropy as interval_cross_entropy
from .certified import ramped as ramped
from .certified import worst_margins as worst_margins
from .region_bounds import fold_network as fold_network
from .region_bounds import montufar as montufar
from .region_bounds import region_bound as region_bound
from .region_bounds import zaslavsky as zaslavsky
from .robustness_curve import RobustCurves as RobustCurves
from .robustness_curve import certified_radii as certified_radii
from .smoothing import Smoothed as Smoothed
from .smoothing import gaussian as gaussian
from .smoothing import least_probability as least_probability
from .smoothing import smoothed as smoothed
from .smoothing import votes as votes
