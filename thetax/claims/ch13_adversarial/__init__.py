"""Chapter 13, adversarial examples: how small a change makes an answer wrong, and how to train
against it.
"""

from . import affine as affine
from . import ascent as ascent
from . import deepfool as deepfool
from . import hardening as hardening
from . import norms as norms
