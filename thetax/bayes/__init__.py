"""Beliefs: Gaussian processes, exact and for many examples, for regression and for classes.

A process is a module whose leaves are hyper-parameters; `condition(xs, ys)` gives its posterior,
`log_evidence(xs, ys)` what speaks for it, and `fit_evidence` the hyper-parameters for which most
does. Kernels come from here or from elsewhere: any `k(xs, ys=None)` will do.
"""

from .gaussian_process import RBF as RBF
from .gaussian_process import BinaryClassifier as BinaryClassifier
from .gaussian_process import BinaryPosterior as BinaryPosterior
from .gaussian_process import Classifier as Classifier
from .gaussian_process import ClassPosterior as ClassPosterior
from .gaussian_process import Constant as Constant
from .gaussian_process import EvidenceFit as EvidenceFit
from .gaussian_process import Factor as Factor
from .gaussian_process import GaussianProcess as GaussianProcess
from .gaussian_process import InducingPosterior as InducingPosterior
from .gaussian_process import InducingProcess as InducingProcess
from .gaussian_process import IterativePosterior as IterativePosterior
from .gaussian_process import JitterWarning as JitterWarning
from .gaussian_process import Kernel as Kernel
from .gaussian_process import Matern as Matern
from .gaussian_process import Periodic as Periodic
from .gaussian_process import Pivots as Pivots
from .gaussian_process import Polynomial as Polynomial
from .gaussian_process import Posterior as Posterior
from .gaussian_process import Product as Product
from .gaussian_process import RationalQuadratic as RationalQuadratic
from .gaussian_process import Solve as Solve
from .gaussian_process import Sum as Sum
from .gaussian_process import condition_iteratively as condition_iteratively
from .gaussian_process import conjugate_gradients as conjugate_gradients
from .gaussian_process import diagonal as diagonal
from .gaussian_process import evidence_gradient as evidence_gradient
from .gaussian_process import factorise as factorise
from .gaussian_process import fit_evidence as fit_evidence
from .gaussian_process import linear_kernel as linear_kernel
from .gaussian_process import log_density as log_density
from .gaussian_process import pivoted_cholesky as pivoted_cholesky
from .gaussian_process import single as single
from .gaussian_process import square_distance as square_distance
