"""Outputs of generative models: text samples and translations."""

from .text_samples import TextSamples as TextSamples
from .text_samples import text_samples as text_samples
from .translations import Translations as Translations
from .translations import translations as translations
