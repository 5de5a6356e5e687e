"""Figures of predictions: calibration, confusion matrices, uncertainty, images, text."""

from . import classification as classification
from . import dots as dots
from . import images as images
from . import intervals as intervals
from . import mc_dropout as mc_dropout
from . import separation as separation
from . import text_samples as text_samples
from . import uncertainty as uncertainty
from .classification import as_images as as_images
from .dots import DotColumn as DotColumn
from .dots import DotPlot as DotPlot
