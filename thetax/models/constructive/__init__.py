"""Networks that one can write down: approximation, Barron functions, products by ReLU,
symmetries.
"""

from .algebra import add as add
from .algebra import as_sigmoid as as_sigmoid
from .algebra import as_tanh as as_tanh
from .algebra import collapse as collapse
from .algebra import multiply as multiply
from .approximate import interpolate as interpolate
from .approximate import random_units as random_units
from .approximate import ridge_network as ridge_network
from .approximate import step_network as step_network
from .barron import CosineMixture as CosineMixture
from .barron import GreedyNetwork as GreedyNetwork
from .barron import barron_network as barron_network
from .barron import gaussian_bell as gaussian_bell
from .barron import greedy_network as greedy_network
from .barron import sample_units as sample_units
from .pdp import System as System
from .pdp import hopfield_system as hopfield_system
from .pdp import mlp_system as mlp_system
from .pdp import perceptron_system as perceptron_system
from .relu_polynomials import max_affine_network as max_affine_network
from .relu_polynomials import product_network as product_network
from .relu_polynomials import square_network as square_network
from .symmetry import permute as permute
from .symmetry import rescale as rescale
from .symmetry import widen as widen
