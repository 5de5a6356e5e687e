"""Associative memories: Hopfield networks, classical and dense, and their recall."""

from .dense_hopfield import DenseMemory as DenseMemory
from .dense_hopfield import ExponentialMemory as ExponentialMemory
from .hopfield import Hebbian as Hebbian
from .hopfield import Hopfield as Hopfield
from .hopfield import hebb as hebb
from .hopfield import pseudo_inverse as pseudo_inverse
from .memory import AsynchronousRecall as AsynchronousRecall
from .memory import Memory as Memory
from .memory import SynchronousRecall as SynchronousRecall
from .memory import UpdateTrace as UpdateTrace
from .memory import asynchronous_recall as asynchronous_recall
from .memory import synchronous_recall as synchronous_recall
from .memory import update_sites as update_sites
