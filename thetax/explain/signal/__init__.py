"""Signals inside a network: activations, gradients through depth and time, cost, the network's
graph.
"""

from .activation_statistics import Activations as Activations
from .activation_statistics import Gradients as Gradients
from .activation_statistics import Weights as Weights
from .activation_statistics import activations as activations
from .activation_statistics import gradients as gradients
from .activation_statistics import weights as weights
from .cost import Cost as Cost
from .cost import Pass as Pass
from .cost import cost as cost
from .cost import operations as operations
from .curves import Curves as Curves
from .curves import curves as curves
from .effective_parameters import Shrinkage as Shrinkage
from .effective_parameters import decay_factor as decay_factor
from .effective_parameters import equivalent_steps as equivalent_steps
from .effective_parameters import shrinkage as shrinkage
from .effective_parameters import stopping_factor as stopping_factor
from .eigenvalues import Eigenvalues as Eigenvalues
from .eigenvalues import eigenvalues as eigenvalues
from .gradients_through_time import ThroughTime as ThroughTime
from .gradients_through_time import elman_rate as elman_rate
from .gradients_through_time import through_time as through_time
from .network_graph import Wiring as Wiring
from .network_graph import wiring as wiring
from .recurrence import Recurrence as Recurrence
from .recurrence import cells as cells
from .recurrence import recurrence as recurrence
