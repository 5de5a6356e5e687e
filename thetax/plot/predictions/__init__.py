"""Figures of predictions: calibration, confusions, uncertainty, images, text."""

from . import dots as dots
from . import images as images
from . import intervals as intervals
from . import judgement as judgement
from . import mc_dropout as mc_dropout
from . import separation as separation
from . import text_samples as text_samples
from . import uncertainty as uncertainty
from .dots import DotColumn as DotColumn
from .dots import DotPlot as DotPlot
from .judgement import as_images as as_images
