"""Optimisers: gradient descent with Optax, the course's update rules, proximal gradient descent,
gradient flow, backpropagation.
"""

from .backpropagate import Backprop as Backprop
from .backpropagate import backpropagate as backpropagate
from .descend import AveragedState as AveragedState
from .descend import DescentState as DescentState
from .descend import EnsembleState as EnsembleState
from .descend import StepInfo as StepInfo
from .descend import descend as descend
from .descend import ema as ema
from .descend import per_member as per_member
from .descend import swa as swa
from .gradient_flow import GradientFlow as GradientFlow
from .gradient_flow import gradient_flow as gradient_flow
from .proximal import ista as ista
from .proximal import soft_threshold as soft_threshold
from .steps import Moments as Moments
from .steps import NesterovState as NesterovState
from .steps import adagrad as adagrad
from .steps import adam as adam
from .steps import heavy_ball as heavy_ball
from .steps import nesterov as nesterov
from .steps import nesterov_iterate as nesterov_iterate
from .steps import rmsprop as rmsprop
from .steps import uncorrected_adam as uncorrected_adam
