"""Networks for images: CNN, ResNet, DenseNet, MLP-Mixer."""

from .cnn import CNN as CNN
from .cnn import LeNet as LeNet
from .densenet import DenseNet as DenseNet
from .mixer import Mixer as Mixer
from .mixer import MixerBlock as MixerBlock
from .resnet import ResNet as ResNet
from .resnet import ResNetLayout as ResNetLayout
