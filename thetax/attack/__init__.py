"""The worst input nearby: how far it may be moved, and where the loss is largest there.

An attack is `attack(model, x, y, *, key=None) -> x'`, for one example; the batch is `jax.vmap`, and for many examples
`perturb`. It is composed of a goal, what it makes large, and a ball, in which it stays.
"""

from .adaptive import APGD as APGD
from .affine import AffineAttack as AffineAttack
from .affine import affine_distance as affine_distance
from .affine import affine_radius as affine_radius
from .attempt import Attack as Attack
from .attempt import Attempt as Attempt
from .ball import L0 as L0
from .ball import L1 as L1
from .ball import L2 as L2
from .ball import Ball as Ball
from .ball import Linf as Linf
from .ball import limits_of as limits_of
from .carlini import CarliniWagner as CarliniWagner
from .certified import Certified as Certified
from .certified import certified as certified
from .certified import interval_cross_entropy as interval_cross_entropy
from .certified import ramped as ramped
from .certified import worst_margins as worst_margins
from .deepfool import DeepFool as DeepFool
from .goal import Goal as Goal
from .goal import away as away
from .goal import logit_ratio as logit_ratio
from .goal import margin as margin
from .goal import only as only
from .goal import target_ratio as target_ratio
from .goal import towards as towards
from .gradient import PGD as PGD
from .gradient import fgsm as fgsm
from .hop_skip_jump import HopSkipJump as HopSkipJump
from .interval import interval_bounds as interval_bounds
from .linear_bounds import linear_bounds as linear_bounds
from .nearest import Nearest as Nearest
from .norm import p_norm as p_norm
from .norm import p_steepest as p_steepest
from .perturb import perturb as perturb
from .robust import Alarm as Alarm
from .robust import overfitting as overfitting
from .robust import pair_logits as pair_logits
from .robust import robust as robust
from .robust import single_step as single_step
from .robust import trades as trades
from .robustness import Check as Check
from .robustness import Robustness as Robustness
from .robustness import robustness as robustness
from .smoothing import Smoothed as Smoothed
from .smoothing import gaussian as gaussian
from .smoothing import least_probability as least_probability
from .smoothing import smoothed as smoothed
from .smoothing import votes as votes
from .square import Square as Square
from .worst import Targeted as Targeted
from .worst import WorstOf as WorstOf
from .worst import instead as instead
from .worst import strongest as strongest
