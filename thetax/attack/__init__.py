"""The worst input nearby: how far it may be moved, and where the loss is largest there.

An attack is `attack(model, x, y, *, key=None) -> x'`, for one example; the batch is `jax.vmap`, and
for many examples `perturb`. It is composed of a goal, what it makes large, and a ball, in which it
stays.
"""

from .adversarial_example import AdversarialExample as AdversarialExample
from .adversarial_training import MetricAlert as MetricAlert
from .adversarial_training import adversarial_objective as adversarial_objective
from .adversarial_training import catastrophic_overfitting as catastrophic_overfitting
from .adversarial_training import logit_pairing as logit_pairing
from .adversarial_training import random_start_fgsm as random_start_fgsm
from .adversarial_training import trades as trades
from .base import Attack as Attack
from .base import Candidate as Candidate
from .blackbox import HopSkipJump as HopSkipJump
from .blackbox import Square as Square
from .boundary_distance import BoundaryDistances as BoundaryDistances
from .boundary_distance import DistancesByNorm as DistancesByNorm
from .boundary_distance import LeastRobust as LeastRobust
from .boundary_distance import boundary_distance as boundary_distance
from .boundary_distance import least_robust as least_robust
from .goal import Goal as Goal
from .goal import dlr_loss as dlr_loss
from .goal import margin_loss as margin_loss
from .goal import maximise_loss as maximise_loss
from .goal import targeted as targeted
from .goal import targeted_dlr_loss as targeted_dlr_loss
from .goal import untargeted as untargeted
from .gradient import APGD as APGD
from .gradient import PGD as PGD
from .gradient import AffineAttack as AffineAttack
from .gradient import CarliniWagner as CarliniWagner
from .gradient import DeepFool as DeepFool
from .gradient import affine_distance as affine_distance
from .gradient import affine_radius as affine_radius
from .gradient import fgsm as fgsm
from .loss_surface import LossSurface as LossSurface
from .loss_surface import loss_surface as loss_surface
from .nearest import MinimumNormAttack as MinimumNormAttack
from .perturb import perturb as perturb
from .robustness import Robustness as Robustness
from .robustness import SanityCheck as SanityCheck
from .robustness import robustness as robustness
from .worst_of import AttackEnsemble as AttackEnsemble
from .worst_of import MultiTargeted as MultiTargeted
from .worst_of import auto_attack as auto_attack
from .worst_of import via_target as via_target
