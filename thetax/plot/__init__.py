"""How each result looks: `draw(result)` gives a Matplotlib figure, in a light theme or a dark one.

Figures are made without `pyplot`: no global state, no window. To draw a result of a new kind, register one
function with `draws`.
"""

from . import approximation as approximation
from . import attack as attack
from . import attention as attention
from . import certificates as certificates
from . import cost as cost
from . import critical as critical
from . import depth as depth
from . import descent as descent
from . import disguise as disguise
from . import doubt as doubt
from . import images as images
from . import intervals as intervals
from . import judgement as judgement
from . import landscape as landscape
from . import memory as memory
from . import regions as regions
from . import separation as separation
from . import shrinkage as shrinkage
from . import speech as speech
from . import tangent as tangent
from . import thinning as thinning
from . import time as time
from . import training as training
from . import tuning as tuning
from . import wiring as wiring
from .chart import Chart as Chart
from .chart import Panel as Panel
from .diagram import Arrow as Arrow
from .diagram import Box as Box
from .diagram import Diagram as Diagram
from .diagram import Sheet as Sheet
from .dots import Column as Column
from .dots import Dots as Dots
from .draw import blank as blank
from .draw import draw as draw
from .draw import drawable as drawable
from .draw import draws as draws
from .heatmap import Heatmap as Heatmap
from .judgement import as_pictures as as_pictures
from .theme import DARK as DARK
from .theme import LIGHT as LIGHT
from .theme import WIDTH as WIDTH
from .theme import Theme as Theme
