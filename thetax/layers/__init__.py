"""The parts of $f[\\theta]$, each a map of one example whose leaves are parameters and nothing else.

A layer holds its weights (`Linear(W, b)`) and `init` draws them (`Linear.init(n, m, key=key)`). Layers
are made into networks by `Chain`, `Residual`, `Concat` and `Ensemble`.
"""

from .activation import Activation as Activation
from .activation import centred as centred
from .activation import gelu as gelu
from .activation import heaviside as heaviside
from .activation import identity as identity
from .activation import leaky_relu as leaky_relu
from .activation import relu as relu
from .activation import sigmoid as sigmoid
from .activation import sign as sign
from .activation import softmax as softmax
from .activation import softplus as softplus
from .activation import spin as spin
from .activation import tanh as tanh
from .bag import Bag as Bag
from .compose import Chain as Chain
from .compose import Concat as Concat
from .compose import Ensemble as Ensemble
from .compose import Pointwise as Pointwise
from .compose import Residual as Residual
from .compose import mean as mean
from .compose import mixture as mixture
from .dropout import DropConnect as DropConnect
from .dropout import Dropout as Dropout
from .hopfield import ModernHopfield as ModernHopfield
from .initialise import Law as Law
from .initialise import fan_in as fan_in
from .initialise import fan_out as fan_out
from .initialise import gaussian as gaussian
from .initialise import glorot as glorot
from .initialise import he as he
from .initialise import lecun as lecun
from .initialise import orthogonal as orthogonal
from .initialise import tangent as tangent
from .initialise import uniform as uniform
from .linear import Affine as Affine
from .linear import Linear as Linear
from .linear import dense as dense
from .normalise import BatchNorm as BatchNorm
from .normalise import LayerNorm as LayerNorm
from .normalise import WeightNorm as WeightNorm
from .normalise import fold as fold
from .normalise import has_batch_norm as has_batch_norm
from .observe import tap as tap
from .recurrent import Elman as Elman
from .recurrent import Recurrent as Recurrent
from .recurrent import unroll as unroll
