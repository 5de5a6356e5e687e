"""Associative memories: Hopfield networks, classical and dense."""

from .dense_hopfield import DenseMemory as DenseMemory
from .dense_hopfield import ExponentialMemory as ExponentialMemory
from .hopfield import Hebbian as Hebbian
from .hopfield import Hopfield as Hopfield
from .hopfield import hebb as hebb
from .hopfield import pseudo_inverse as pseudo_inverse
from .memory import AsynchronousRecall as AsynchronousRecall
from .memory import Memory as Memory
from .memory import SynchronousRecall as SynchronousRecall
from .memory import VisitTrace as VisitTrace
from .memory import asynchronous as asynchronous
from .memory import synchronous as synchronous
from .memory import visit as visit
