"""The worst input nearby: how far it may be moved, and where the loss is largest there.

An attack is `attack(model, x, y, *, key=None) -> x'`, for one example; the batch is `jax.vmap`, and for many examples
`perturb`. It is composed of a goal, what it makes large, and a ball, in which it stays.
"""

from .attempt import Attack as Attack
from .attempt import Attempt as Attempt
from .ball import L0 as L0
from .ball import L1 as L1
from .ball import L2 as L2
from .ball import Ball as Ball
from .ball import Linf as Linf
from .ball import limits_of as limits_of
from .goal import Goal as Goal
from .goal import away as away
from .goal import logit_ratio as logit_ratio
from .goal import margin as margin
from .goal import only as only
from .goal import towards as towards
from .gradient import PGD as PGD
from .gradient import fgsm as fgsm
from .perturb import perturb as perturb
