"""Chapter 9, the neural tangent kernel: linearised networks, training as a gradient flow, infinite
width.
"""

from . import arc_cosine as arc_cosine
from . import constancy as constancy
from . import cost as cost
from . import flow as flow
from . import linearised as linearised
from . import scaling as scaling
from . import shortest as shortest
from . import width as width
