"""From $\\theta_0$ to $\\theta^*$: losses, objectives made of objectives, descent, and the loop that runs it.

`fit(descend(cross_entropy, optax.adam(1e-3)), model, data, epochs=10, key=key)` is the whole of it; a `Run`
makes it survive a crash. Orbax is imported only by a fit that has a run.
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
from .fit import Diverged as Diverged
from .fit import Fit as Fit
from .fit import fit as fit
from .flow import Flow as Flow
from .flow import gradient_flow as gradient_flow
from .loop import evaluate as evaluate
from .loss import average as average
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import binary_error_rate as binary_error_rate
from .loss import binary_log_loss as binary_log_loss
from .loss import binary_mistake as binary_mistake
from .loss import cross_entropy as cross_entropy
from .loss import error_rate as error_rate
from .loss import log_loss as log_loss
from .loss import mistake as mistake
from .loss import squared_error as squared_error
from .loss import squared_loss as squared_loss
from .optimise import Lookahead as Lookahead
from .optimise import Moments as Moments
from .optimise import adagrad as adagrad
from .optimise import adam as adam
from .optimise import heavy_ball as heavy_ball
from .optimise import iterate as iterate
from .optimise import nesterov as nesterov
from .optimise import rmsprop as rmsprop
from .optimise import uncorrected_adam as uncorrected_adam
from .progress import Bar as Bar
from .progress import JsonLines as JsonLines
from .progress import Lines as Lines
from .progress import Progress as Progress
from .progress import Silent as Silent
from .progress import watch as watch
from .regularise import augmented as augmented
from .regularise import confuse_labels as confuse_labels
from .regularise import lasso as lasso
from .regularise import mixed_precision as mixed_precision
from .regularise import smooth_labels as smooth_labels
from .regularise import weight_decay as weight_decay
from .run import Run as Run
from .run import versions as versions
from .weights import load_weights as load_weights
from .weights import save_weights as save_weights
