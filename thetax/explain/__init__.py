"""What $\\theta$ does: lenses on a trained model.

Each is a pure function of a model and data that returns a small frozen dataclass of arrays, the answer first;
`thetax.plot.draw` draws it. None of them changes the model or imports a plotting library.
"""

from .anatomy import labels as labels
from .anatomy import listen as listen
from .anatomy import modules as modules
from .belief import belief as belief
from .calibration import Calibration as Calibration
from .calibration import calibration as calibration
from .curvature import Curvature as Curvature
from .curvature import Sharpness as Sharpness
from .curvature import Spectrum as Spectrum
from .curvature import Trace as Trace
from .curvature import curvature as curvature
from .curvature import hvp as hvp
from .curvature import sharpness as sharpness
from .curvature import spectrum as spectrum
from .curvature import trace as trace
from .curves import Curves as Curves
from .curves import curves as curves
from .krylov import Lanczos as Lanczos
from .krylov import Ritz as Ritz
from .krylov import lanczos as lanczos
from .krylov import ritz as ritz
from .mistakes import Confusion as Confusion
from .mistakes import Worst as Worst
from .mistakes import confusion as confusion
from .mistakes import worst as worst
from .signal import Activations as Activations
from .signal import Gradients as Gradients
from .signal import Weights as Weights
from .signal import activations as activations
from .signal import gradients as gradients
from .signal import weights as weights
