"""Convolution and pooling layers, and convolution as a Toeplitz matrix."""

from .convolution import Convolution as Convolution
from .convolution import convolve as convolve
from .convolution import correlate as correlate
from .pooling import AdaptivePool as AdaptivePool
from .pooling import AveragePool as AveragePool
from .pooling import MaxPool as MaxPool
from .pooling import global_max as global_max
from .pooling import global_mean as global_mean
from .toeplitz import circulant as circulant
from .toeplitz import fft_convolve as fft_convolve
from .toeplitz import matrix_of as matrix_of
from .toeplitz import toeplitz as toeplitz
