"""Adversarial attacks, adversarial training, and robust accuracy.

An attack is `attack(model, x, y, *, key=None) -> x'` for one example; `perturb` runs it on a
dataset. It is composed of a goal (`untargeted(loss)`, `targeted(loss)`, or a plain loss) and a ball
(`Linf`, `L2`, `L1`, `L0`), the threat model. With a plain loss as its goal an attack always runs
all its steps; with `untargeted(loss)` it stops as soon as the predicted class is wrong.
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
from .ensemble import AttackEnsemble as AttackEnsemble
from .ensemble import MultiTargeted as MultiTargeted
from .ensemble import auto_attack as auto_attack
from .ensemble import via_target as via_target
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
from .input_loss_surface import LossSurface as LossSurface
from .input_loss_surface import input_loss_surface as input_loss_surface
from .minimum_norm import MinimumNormAttack as MinimumNormAttack
from .perturb import Perturbed as Perturbed
from .perturb import perturb as perturb
from .robustness import Robustness as Robustness
from .robustness import SanityCheck as SanityCheck
from .robustness import robustness as robustness

__all__ = [
    "APGD",
    "PGD",
    "AdversarialExample",
    "AffineAttack",
    "Attack",
    "AttackEnsemble",
    "BoundaryDistances",
    "Candidate",
    "CarliniWagner",
    "DeepFool",
    "DistancesByNorm",
    "Goal",
    "HopSkipJump",
    "LeastRobust",
    "LossSurface",
    "MetricAlert",
    "MinimumNormAttack",
    "MultiTargeted",
    "Perturbed",
    "Robustness",
    "SanityCheck",
    "Square",
    "adversarial_objective",
    "affine_distance",
    "affine_radius",
    "auto_attack",
    "boundary_distance",
    "catastrophic_overfitting",
    "dlr_loss",
    "fgsm",
    "input_loss_surface",
    "least_robust",
    "logit_pairing",
    "margin_loss",
    "maximise_loss",
    "perturb",
    "random_start_fgsm",
    "robustness",
    "targeted",
    "targeted_dlr_loss",
    "trades",
    "untargeted",
    "via_target",
]
