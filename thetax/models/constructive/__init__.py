"""Networks with explicitly constructed weights: universal approximation, Barron functions, ReLU
products, symmetries of the weights.
"""

from .algebra import add_networks as add_networks
from .algebra import as_sigmoid as as_sigmoid
from .algebra import as_tanh as as_tanh
from .algebra import merge_linear_layers as merge_linear_layers
from .algebra import scale_network as scale_network
from .approximate import interpolating_network as interpolating_network
from .approximate import random_units as random_units
from .approximate import ridge_network as ridge_network
from .approximate import step_network as step_network
from .barron import CosineMixture as CosineMixture
from .barron import GreedyNetwork as GreedyNetwork
from .barron import barron_network as barron_network
from .barron import gaussian_bell as gaussian_bell
from .barron import greedy_network as greedy_network
from .barron import sample_units as sample_units
from .pdp import PDPSystem as PDPSystem
from .pdp import hopfield_system as hopfield_system
from .pdp import mlp_system as mlp_system
from .pdp import perceptron_system as perceptron_system
from .relu_polynomials import max_affine_network as max_affine_network
from .relu_polynomials import product_network as product_network
from .relu_polynomials import square_network as square_network
from .symmetry import permute_units as permute_units
from .symmetry import rescale_units as rescale_units
from .symmetry import widen as widen
