"""Gaussian processes: exact, sparse and iterative regression, and classification.

A process is a module whose leaves are hyperparameters. `condition(xs, ys)` returns its posterior,
`log_marginal_likelihood(xs, ys)` the log marginal likelihood (the evidence), and
`fit_hyperparameters` maximises it. A kernel is any function `k(xs, ys=None)`, from here or from
elsewhere.
"""

from .gaussian_process import RBF as RBF
from .gaussian_process import BinaryClassifierPosterior as BinaryClassifierPosterior
from .gaussian_process import CGSolution as CGSolution
from .gaussian_process import CholeskyFactor as CholeskyFactor
from .gaussian_process import ClassifierPosterior as ClassifierPosterior
from .gaussian_process import ConstantKernel as ConstantKernel
from .gaussian_process import GaussianProcess as GaussianProcess
from .gaussian_process import GaussianProcessBinaryClassifier as GaussianProcessBinaryClassifier
from .gaussian_process import GaussianProcessClassifier as GaussianProcessClassifier
from .gaussian_process import HyperparameterFit as HyperparameterFit
from .gaussian_process import IterativePosterior as IterativePosterior
from .gaussian_process import JitterWarning as JitterWarning
from .gaussian_process import Kernel as Kernel
from .gaussian_process import Matern as Matern
from .gaussian_process import Periodic as Periodic
from .gaussian_process import PivotedCholesky as PivotedCholesky
from .gaussian_process import PolynomialKernel as PolynomialKernel
from .gaussian_process import Posterior as Posterior
from .gaussian_process import ProductKernel as ProductKernel
from .gaussian_process import RationalQuadratic as RationalQuadratic
from .gaussian_process import SparseGaussianProcess as SparseGaussianProcess
from .gaussian_process import SparsePosterior as SparsePosterior
from .gaussian_process import SumKernel as SumKernel
from .gaussian_process import cholesky_with_jitter as cholesky_with_jitter
from .gaussian_process import condition_iteratively as condition_iteratively
from .gaussian_process import conjugate_gradients as conjugate_gradients
from .gaussian_process import fit_hyperparameters as fit_hyperparameters
from .gaussian_process import gaussian_log_density as gaussian_log_density
from .gaussian_process import kernel_diagonal as kernel_diagonal
from .gaussian_process import linear_kernel as linear_kernel
from .gaussian_process import marginal_likelihood_gradient as marginal_likelihood_gradient
from .gaussian_process import pivoted_cholesky as pivoted_cholesky
from .gaussian_process import squared_distances as squared_distances
from .gaussian_process import to_float32 as to_float32

__all__ = [
    "RBF",
    "BinaryClassifierPosterior",
    "CGSolution",
    "CholeskyFactor",
    "ClassifierPosterior",
    "ConstantKernel",
    "GaussianProcess",
    "GaussianProcessBinaryClassifier",
    "GaussianProcessClassifier",
    "HyperparameterFit",
    "IterativePosterior",
    "JitterWarning",
    "Kernel",
    "Matern",
    "Periodic",
    "PivotedCholesky",
    "PolynomialKernel",
    "Posterior",
    "ProductKernel",
    "RationalQuadratic",
    "SparseGaussianProcess",
    "SparsePosterior",
    "SumKernel",
    "cholesky_with_jitter",
    "condition_iteratively",
    "conjugate_gradients",
    "fit_hyperparameters",
    "gaussian_log_density",
    "kernel_diagonal",
    "linear_kernel",
    "marginal_likelihood_gradient",
    "pivoted_cholesky",
    "squared_distances",
    "to_float32",
]
