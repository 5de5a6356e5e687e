"""Whole jobs on real data, one function each: what `thetax train NAME` runs.

>>> sorted(RECIPES)
['adding', 'attack', 'bert', 'chars', 'cnn', 'cora', 'default', 'digits', ...]
"""

from .engine import RECIPES as RECIPES
from .engine import TUNABLE as TUNABLE
from .engine import Job as Job
from .engine import Outcome as Outcome
from .engine import Recipe as Recipe
from .engine import Tunable as Tunable
from .engine import find_recipe as find_recipe
from .engine import find_tunable as find_tunable
from .engine import mlp_initialiser as mlp_initialiser
from .engine import recipe as recipe
from .engine import tunable as tunable
from .graphs.cora import cora as cora
from .graphs.mutag import mutag as mutag
from .graphs.oversmoothing import oversmoothing as oversmoothing
from .images.cnn import cnn as cnn
from .images.digits import digits as digits
from .images.distil import distil as distil
from .images.isl_table import isl_table as isl_table
from .images.mnist import mnist as mnist
from .images.resnet import resnet as resnet
from .images.tricks import tricks as tricks
from .images.vit import vit as vit
from .kernels.gp import gp as gp
from .kernels.nngp import nngp as nngp
from .kernels.ntk import ntk as ntk
from .robustness.attack import attack as attack
from .robustness.robust_mnist import robust_mnist as robust_mnist
from .robustness.smooth import smooth as smooth
from .sequences.adding import adding as adding
from .sequences.listops import listops as listops
from .sequences.nyse import nyse as nyse
from .sequences.recall import recall as recall
from .sequences.seq2seq import seq2seq as seq2seq
from .sets.pointnet import pointnet as pointnet
from .sets.sets import sets as sets
from .tabular.default import default as default
from .tabular.spam import spam as spam
from .text.bert import bert as bert
from .text.chars import chars as chars
from .text.gpt import gpt as gpt
from .text.imdb import imdb as imdb
from .text.sentiment import sentiment as sentiment
from .text.spans import spans as spans
from .text.tagging import tagging as tagging
from .text.translate import translate as translate

__all__ = [
    "RECIPES",
    "TUNABLE",
    "Job",
    "Outcome",
    "Recipe",
    "Tunable",
    "adding",
    "attack",
    "bert",
    "chars",
    "cnn",
    "cora",
    "default",
    "digits",
    "distil",
    "find_recipe",
    "find_tunable",
    "gp",
    "gpt",
    "imdb",
    "isl_table",
    "listops",
    "mlp_initialiser",
    "mnist",
    "mutag",
    "nngp",
    "ntk",
    "nyse",
    "oversmoothing",
    "pointnet",
    "recall",
    "recipe",
    "resnet",
    "robust_mnist",
    "sentiment",
    "seq2seq",
    "sets",
    "smooth",
    "spam",
    "spans",
    "tagging",
    "translate",
    "tricks",
    "tunable",
    "vit",
]
