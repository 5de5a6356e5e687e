"""Lecture 1, introduction: linear maps, autoencoders, deep linear networks, ridge functions, the
first network.
"""

from . import autoencoder as autoencoder
from . import by_hand as by_hand
from . import coordinates as coordinates
from . import deep_linear as deep_linear
from . import figures as figures
from . import linear as linear
from . import logistic as logistic
from . import matrix_derivatives as matrix_derivatives
from . import network as network
from . import ridge as ridge
from . import softmax as softmax
from . import svd as svd
