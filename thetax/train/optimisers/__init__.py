"""Optimisers: descent with Optax, the course's update rules, proximal steps, gradient flow,
backpropagation.
"""

from .backpropagate import Backprop as Backprop
from .backpropagate import backpropagate as backpropagate
from .descend import Averaged as Averaged
from .descend import Descent as Descent
from .descend import Restarts as Restarts
from .descend import Step as Step
from .descend import descend as descend
from .descend import ema as ema
from .descend import restarts as restarts
from .descend import swa as swa
from .gradient_flow import Flow as Flow
from .gradient_flow import gradient_flow as gradient_flow
from .proximal import ista as ista
from .proximal import soft_threshold as soft_threshold
from .steps import Lookahead as Lookahead
from .steps import Moments as Moments
from .steps import adagrad as adagrad
from .steps import adam as adam
from .steps import heavy_ball as heavy_ball
from .steps import iterate as iterate
from .steps import nesterov as nesterov
from .steps import rmsprop as rmsprop
from .steps import uncorrected_adam as uncorrected_adam
