"""The help texts of options that many recipes share.

The command line shows the `Parameters` section of a recipe's docstring. It describes only the
options that need a text of their own; the others are described here.
"""

import inspect
from collections.abc import Callable
from typing import Any

OPTION_HELP = {
    "baseline_epochs": "Passes over the training set for the baselines; 0 to leave them out.",
    "batch_size": "Examples per batch.",
    "beam_width": "Beam width of the beam search.",
    "books": "Gutenberg texts to use, by name.",
    "channels": "Output channels of the convolutions, each of which halves height and width.",
    "data": "Dataset.",
    "depth": "Number of layers.",
    "dropout": "Dropout probability.",
    "encoder": "Encoders to fine-tune, one table row each: scratch, minilm, or the folder of a run "
    "of bert.",
    "epochs": "Passes over the training set.",
    "heads": "Attention heads per layer.",
    "hidden": "Widths of the hidden layers.",
    "label_smoothing": "Label smoothing: share of each label that is spread over all classes.",
    "learning_rate": "Initial learning rate of Adam; it decays to zero along a cosine.",
    "length": "Sequence length.",
    "max_length": "Maximum sequence length in tokens.",
    "max_order": "Largest order of the n-gram baseline: characters of context.",
    "max_shift": "Largest random shift of a training image, in pixels.",
    "members": "Networks in the ensemble.",
    "n_seeds": "Networks of each kind, trained from different random seeds.",
    "n_test": "Test examples to use.",
    "n_train": "Training examples to use.",
    "patience": "Stop after this many epochs without a lower validation error.",
    "precision": "Compute dtype; parameters, norms and losses stay float32.",
    "restarts": "Random restarts of the attack.",
    "scratch_epochs": "Passes over the training set for an encoder trained from scratch.",
    "scratch_learning_rate": "Peak learning rate for an encoder trained from scratch.",
    "vocab_size": "Vocabulary size.",
    "weight_decay": "Weight decay: strength of the L2 penalty on the parameters.",
    "width": "Embedding dimension.",
}


def complete_docstring(function: Callable[..., Any]) -> str:
    """The docstring of a recipe, completed by an entry of `OPTION_HELP` for each missing option.

    >>> def recipe(job, *, epochs=3, speed=1):
    ...     '''Does a job.'''
    >>> print(complete_docstring(recipe))
    Does a job.
    <BLANKLINE>
    Parameters
    ----------
    epochs
        Passes over the training set.
    """
    document = inspect.getdoc(function) or ""
    options = [name for name in inspect.signature(function).parameters if name in OPTION_HELP]
    missing = [name for name in options if f"\n{name}\n    " not in document]
    if not missing:
        return document
    if "\nParameters\n---" not in document:
        document += "\n\nParameters\n----------"
    return "\n".join([document, *(f"{name}\n    {OPTION_HELP[name]}" for name in missing)])
