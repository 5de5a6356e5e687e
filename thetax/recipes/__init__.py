"""Whole jobs on real data, one function each: what `thetax train NAME` runs.

>>> sorted(RECIPES)
['adding', 'attack', 'bert', 'chars', 'cnn', 'default', 'digits', 'distil', ...]
"""

from .attacked import attack as attack
from .bert import bert as bert
from .cars import gp as gp
from .characters import chars as chars
from .classify import digits as digits
from .classify import mnist as mnist
from .dates import seq2seq as seq2seq
from .distil import distil as distil
from .hardened import robust_mnist as robust_mnist
from .images import cnn as cnn
from .images import resnet as resnet
from .imdb import imdb as imdb
from .isl import default as default
from .isl import isl_table as isl_table
from .job import RECIPES as RECIPES
from .job import Job as Job
from .job import Recipe as Recipe
from .job import find_recipe as find_recipe
from .job import recipe as recipe
from .listops import listops as listops
from .memory import adding as adding
from .memory import recall as recall
from .novels import gpt as gpt
from .outcome import Outcome as Outcome
from .patches import vit as vit
from .sentiment import sentiment as sentiment
from .series import nyse as nyse
from .smoothed import smooth as smooth
from .spam import spam as spam
from .spans import spans as spans
from .tagging import tagging as tagging
from .tricks import tricks as tricks
from .tunable import TUNABLE as TUNABLE
from .tunable import Tunable as Tunable
from .tunable import find_tunable as find_tunable
from .tunable import network as network
from .tunable import tunable as tunable
from .verses import translate as translate
from .wide import nngp as nngp
from .widths import ntk as ntk
