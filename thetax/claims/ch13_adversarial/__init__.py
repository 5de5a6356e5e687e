"""Chapter 13, adversarial examples: small perturbations that change a prediction, and adversarial
training.
"""

from . import affine as affine
from . import ascent as ascent
from . import deepfool as deepfool
from . import hardening as hardening
from . import norms as norms
