"""What language models write: samples of text, translations."""

from .text_samples import Speech as Speech
from .text_samples import speech as speech
from .translations import Translations as Translations
from .translations import translations as translations
