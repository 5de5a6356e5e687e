"""Linear models: least squares, ridge regression, perceptron, hard-margin SVM, PCA, deep linear
networks.
"""

from .deep_linear import ReducedRank as ReducedRank
from .deep_linear import SecondMoments as SecondMoments
from .deep_linear import balanced_factorisation as balanced_factorisation
from .deep_linear import deep_linear as deep_linear
from .deep_linear import deep_linear_gradient as deep_linear_gradient
from .deep_linear import layer_imbalance as layer_imbalance
from .deep_linear import mode_growth as mode_growth
from .deep_linear import reduced_rank_regression as reduced_rank_regression
from .deep_linear import second_moments as second_moments
from .neuron import McCullochPitts as McCullochPitts
from .neuron import Perceptron as Perceptron
from .pca import PCA as PCA
from .pca import LowRank as LowRank
from .pca import low_rank as low_rank
from .pca import principal_components as principal_components
from .perceptron import PerceptronFit as PerceptronFit
from .perceptron import PerceptronPath as PerceptronPath
from .perceptron import fit_perceptron as fit_perceptron
from .perceptron import perceptron_path as perceptron_path
from .regression import least_squares as least_squares
from .regression import leave_one_out as leave_one_out
from .regression import linear_regression as linear_regression
from .regression import logistic_regression as logistic_regression
from .regression import minimum_norm as minimum_norm
from .regression import multinomial_regression as multinomial_regression
from .regression import ridge as ridge
from .separator import MaxMargin as MaxMargin
from .separator import NotSeparable as NotSeparable
from .separator import Separation as Separation
from .separator import find_separator as find_separator
from .separator import geometric_margin as geometric_margin
from .separator import max_margin as max_margin
from .separator import signed_distance as signed_distance
