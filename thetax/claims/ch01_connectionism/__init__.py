"""Chapter 1, connectionism: threshold units, the perceptron, Cover's count, associative
memories.
"""

from . import associative as associative
from . import capacity as capacity
from . import cover as cover
from . import crosstalk as crosstalk
from . import hebb as hebb
from . import hopfield as hopfield
from . import margin as margin
from . import neuron as neuron
from . import notation as notation
from . import novikoff as novikoff
from . import perceptron as perceptron
from . import separator as separator
from . import system as system
from . import transition as transition
from . import version_space as version_space
