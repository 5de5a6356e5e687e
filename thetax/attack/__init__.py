"""The worst input nearby: how far it may be moved, and where the loss is largest there.

An attack is `attack(model, x, y, *, key=None) -> x'`, for one example; the batch is `jax.vmap`, and
for many examples `perturb`. It is composed of a goal, what it makes large, and a ball, in which it
stays.
"""

from .adversarial_example import Disguise as Disguise
from .adversarial_training import Alarm as Alarm
from .adversarial_training import overfitting as overfitting
from .adversarial_training import pair_logits as pair_logits
from .adversarial_training import robust as robust
from .adversarial_training import single_step as single_step
from .adversarial_training import trades as trades
from .base import Attack as Attack
from .base import Attempt as Attempt
from .blackbox import HopSkipJump as HopSkipJump
from .blackbox import Square as Square
from .boundary_distance import Boundary as Boundary
from .boundary_distance import Distances as Distances
from .boundary_distance import Fragile as Fragile
from .boundary_distance import boundary as boundary
from .boundary_distance import fragile as fragile
from .goal import Goal as Goal
from .goal import away as away
from .goal import logit_ratio as logit_ratio
from .goal import margin as margin
from .goal import only as only
from .goal import target_ratio as target_ratio
from .goal import towards as towards
from .gradient import APGD as APGD
from .gradient import PGD as PGD
from .gradient import AffineAttack as AffineAttack
from .gradient import CarliniWagner as CarliniWagner
from .gradient import DeepFool as DeepFool
from .gradient import affine_distance as affine_distance
from .gradient import affine_radius as affine_radius
from .gradient import fgsm as fgsm
from .loss_surface import Surface as Surface
from .loss_surface import surface as surface
from .nearest import Nearest as Nearest
from .perturb import perturb as perturb
from .robustness import Check as Check
from .robustness import Robustness as Robustness
from .robustness import robustness as robustness
from .worst_of import Targeted as Targeted
from .worst_of import WorstOf as WorstOf
from .worst_of import instead as instead
from .worst_of import strongest as strongest
