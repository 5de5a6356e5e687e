"""White-box attacks: PGD, APGD, DeepFool, Carlini-Wagner, and the exact attack on an affine
classifier.
"""

from .affine import AffineAttack as AffineAttack
from .affine import affine_distance as affine_distance
from .affine import affine_radius as affine_radius
from .apgd import APGD as APGD
from .carlini_wagner import CarliniWagner as CarliniWagner
from .deepfool import DeepFool as DeepFool
from .pgd import PGD as PGD
from .pgd import fgsm as fgsm
