"""Signals in a network: statistics of activations and weights, gradients through depth and time,
FLOPs, effective parameters, the network as a graph.
"""

from .activation_statistics import ActivationStatistics as ActivationStatistics
from .activation_statistics import GradientNorms as GradientNorms
from .activation_statistics import WeightStatistics as WeightStatistics
from .activation_statistics import activation_statistics as activation_statistics
from .activation_statistics import gradient_norms as gradient_norms
from .activation_statistics import weight_statistics as weight_statistics
from .cost import DerivativeCost as DerivativeCost
from .cost import PassCost as PassCost
from .cost import count_flops as count_flops
from .cost import derivative_cost as derivative_cost
from .curves import TrainingCurves as TrainingCurves
from .curves import training_curves as training_curves
from .effective_parameters import EffectiveParameters as EffectiveParameters
from .effective_parameters import early_stopping_factor as early_stopping_factor
from .effective_parameters import effective_parameters as effective_parameters
from .effective_parameters import weight_decay_equivalent_steps as weight_decay_equivalent_steps
from .effective_parameters import weight_decay_factor as weight_decay_factor
from .eigenvalues import RecurrenceEigenvalues as RecurrenceEigenvalues
from .eigenvalues import recurrence_eigenvalues as recurrence_eigenvalues
from .gradients_through_time import GradientsThroughTime as GradientsThroughTime
from .gradients_through_time import elman_lipschitz_bound as elman_lipschitz_bound
from .gradients_through_time import gradients_through_time as gradients_through_time
from .network_graph import NetworkGraph as NetworkGraph
from .network_graph import network_graph as network_graph
from .recurrence import CapturedRecurrence as CapturedRecurrence
from .recurrence import capture_recurrence as capture_recurrence
from .recurrence import recurrent_cells as recurrent_cells
