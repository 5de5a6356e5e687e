"""Beliefs: Gaussian processes, exact and for many examples, for regression and for classes.

A process is a module whose leaves are hyper-parameters; `condition(xs, ys)` gives its posterior,
`log_evidence(xs, ys)` what speaks for it, and `fit_evidence` the hyper-parameters for which most does. Kernels come
from here or from elsewhere: any `k(xs, ys=None)` will do.
"""

from .conjugate import IterativePosterior as IterativePosterior
from .conjugate import Pivots as Pivots
from .conjugate import Solve as Solve
from .conjugate import condition_iteratively as condition_iteratively
from .conjugate import conjugate_gradients as conjugate_gradients
from .conjugate import pivoted_cholesky as pivoted_cholesky
from .density import log_density as log_density
from .evidence import EvidenceFit as EvidenceFit
from .evidence import evidence_gradient as evidence_gradient
from .evidence import fit_evidence as fit_evidence
from .gaussian_process import GaussianProcess as GaussianProcess
from .gaussian_process import Posterior as Posterior
from .inducing import InducingPosterior as InducingPosterior
from .inducing import InducingProcess as InducingProcess
from .jitter import Factor as Factor
from .jitter import JitterWarning as JitterWarning
from .jitter import factorise as factorise
from .kernels import Constant as Constant
from .kernels import Kernel as Kernel
from .kernels import Polynomial as Polynomial
from .kernels import Product as Product
from .kernels import Sum as Sum
from .kernels import diagonal as diagonal
from .kernels import linear_kernel as linear_kernel
from .laplace import BinaryClassifier as BinaryClassifier
from .laplace import BinaryPosterior as BinaryPosterior
from .laplace_classes import Classifier as Classifier
from .laplace_classes import ClassPosterior as ClassPosterior
from .precision import single as single
from .stationary import RBF as RBF
from .stationary import Matern as Matern
from .stationary import Periodic as Periodic
from .stationary import RationalQuadratic as RationalQuadratic
from .stationary import square_distance as square_distance
