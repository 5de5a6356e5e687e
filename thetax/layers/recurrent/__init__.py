"""Recurrent layers: Elman, LSTM, GRU, state-space models, wrappers, scans."""

from .antisymmetric import Antisymmetric as Antisymmetric
from .antisymmetric import Lipschitz as Lipschitz
from .cell_wrappers import Bidirectional as Bidirectional
from .cell_wrappers import Block as Block
from .cell_wrappers import Recurrent as Recurrent
from .cell_wrappers import Stack as Stack
from .cell_wrappers import Transition as Transition
from .cell_wrappers import Truncated as Truncated
from .elman import Cell as Cell
from .elman import Elman as Elman
from .elman import unroll as unroll
from .hippo import bilinear as bilinear
from .hippo import hippo as hippo
from .lstm_gru import GRU as GRU
from .lstm_gru import LSTM as LSTM
from .lstm_gru import Kept as Kept
from .scan import linear_scan as linear_scan
from .scan import prefix_scan as prefix_scan
from .scan import sequential_scan as sequential_scan
from .state_space import LRU as LRU
from .state_space import DiagonalSSM as DiagonalSSM
from .state_space import MinGRU as MinGRU
from .state_space import SelectiveSSM as SelectiveSSM
