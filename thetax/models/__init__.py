"""Layers assembled into networks, one network a file.

A model maps one example to its output and may be called with a key; it is trained by any objective,
seen by any lens, and saved by its leaves alone.
"""

from .approximate import interpolate as interpolate
from .approximate import random_units as random_units
from .approximate import ridge_network as ridge_network
from .approximate import step_network as step_network
from .arithmetic import add as add
from .arithmetic import as_sigmoid as as_sigmoid
from .arithmetic import as_tanh as as_tanh
from .arithmetic import collapse as collapse
from .arithmetic import multiply as multiply
from .associative import DenseMemory as DenseMemory
from .associative import ExponentialMemory as ExponentialMemory
from .barron import Greedy as Greedy
from .barron import Waves as Waves
from .barron import barron_network as barron_network
from .barron import bell as bell
from .barron import greedy as greedy
from .barron import sample_units as sample_units
from .hopfield import Hebbian as Hebbian
from .hopfield import Hopfield as Hopfield
from .hopfield import hebb as hebb
from .hopfield import pseudo_inverse as pseudo_inverse
from .memory import Memory as Memory
from .memory import Parallel as Parallel
from .memory import Rest as Rest
from .memory import Visits as Visits
from .memory import asynchronous as asynchronous
from .memory import synchronous as synchronous
from .memory import visit as visit
from .mlp import MLP as MLP
from .neuron import McCullochPitts as McCullochPitts
from .neuron import Perceptron as Perceptron
from .perceptron import PerceptronFit as PerceptronFit
from .perceptron import PerceptronPath as PerceptronPath
from .perceptron import fit_perceptron as fit_perceptron
from .perceptron import perceptron_path as perceptron_path
from .regression import least_squares as least_squares
from .regression import linear_regression as linear_regression
from .regression import logistic_regression as logistic_regression
from .regression import multinomial_regression as multinomial_regression
from .regression import ridge as ridge
from .separate import MaxMargin as MaxMargin
from .separate import NotSeparable as NotSeparable
from .separate import Separation as Separation
from .separate import margin as margin
from .separate import max_margin as max_margin
from .separate import separate as separate
from .separate import signed_distance as signed_distance
from .symmetry import permute as permute
from .symmetry import rescale as rescale
from .symmetry import widen as widen
from .system import System as System
from .system import hopfield_system as hopfield_system
from .system import mlp_system as mlp_system
from .system import perceptron_system as perceptron_system
