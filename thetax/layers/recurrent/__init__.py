"""Recurrent layers: Elman (simple RNN), LSTM and GRU cells, state-space models, bidirectional and
stacked wrappers, truncated backpropagation through time, parallel scans.
"""

from .antisymmetric import AntisymmetricRNN as AntisymmetricRNN
from .antisymmetric import LipschitzRNN as LipschitzRNN
from .cell_wrappers import Bidirectional as Bidirectional
from .cell_wrappers import DeepTransition as DeepTransition
from .cell_wrappers import Recurrent as Recurrent
from .cell_wrappers import ResidualCell as ResidualCell
from .cell_wrappers import StackedCells as StackedCells
from .cell_wrappers import TruncatedBPTT as TruncatedBPTT
from .elman import Cell as Cell
from .elman import Elman as Elman
from .elman import unroll as unroll
from .hippo import discretise_bilinear as discretise_bilinear
from .hippo import hippo as hippo
from .lstm_gru import GRU as GRU
from .lstm_gru import LSTM as LSTM
from .lstm_gru import LSTMState as LSTMState
from .scan import linear_scan as linear_scan
from .scan import prefix_scan as prefix_scan
from .scan import sequential_scan as sequential_scan
from .state_space import LRU as LRU
from .state_space import DiagonalSSM as DiagonalSSM
from .state_space import MinGRU as MinGRU
from .state_space import SelectiveSSM as SelectiveSSM
