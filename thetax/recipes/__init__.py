"""Whole jobs on real data, one function each: what `thetax train NAME` runs.

>>> sorted(RECIPES)
['adding', 'attack', 'bert', 'chars', 'cnn', 'default', 'digits', 'distil', ...]
"""

from .adding import adding as adding
from .attack import attack as attack
from .bert import bert as bert
from .chars import chars as chars
from .cnn import cnn as cnn
from .default import default as default
from .digits import digits as digits
from .distil import distil as distil
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
from .gp import gp as gp
from .gpt import gpt as gpt
from .imdb import imdb as imdb
from .isl_table import isl_table as isl_table
from .listops import listops as listops
from .mnist import mnist as mnist
from .nngp import nngp as nngp
from .ntk import ntk as ntk
from .nyse import nyse as nyse
from .recall import recall as recall
from .resnet import resnet as resnet
from .robust_mnist import robust_mnist as robust_mnist
from .sentiment import sentiment as sentiment
from .seq2seq import seq2seq as seq2seq
from .smooth import smooth as smooth
from .spam import spam as spam
from .spans import spans as spans
from .tagging import tagging as tagging
from .translate import translate as translate
from .tricks import tricks as tricks
from .vit import vit as vit

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
    "nngp",
    "ntk",
    "nyse",
    "recall",
    "recipe",
    "resnet",
    "robust_mnist",
    "sentiment",
    "seq2seq",
    "smooth",
    "spam",
    "spans",
    "tagging",
    "translate",
    "tricks",
    "tunable",
    "vit",
]
