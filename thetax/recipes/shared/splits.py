"""Training and test sets that a recipe shares with the search of its hyper-parameters.

`thetax tune` and `thetax train` make the same split from the same seed.
"""

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ... import data
from ...core import Batch


def split_digits(key: PRNGKeyArray) -> tuple[data.Data, Batch, Batch]:
    """The digits; four fifths of them to train on, and a fifth to test on."""
    key_split, *_ = jr.split(key, 4)
    full = data.load("digits")
    return full, *data.split(full.train, 0.8, key=key_split, stratify=full.train[1])


def split_default(key: PRNGKeyArray) -> tuple[data.Data, Batch, Batch]:
    """Credit card default; seven tenths to train on, three tenths to test on.

    The inputs are standardised by the mean and variance of the training set.
    """
    key_split, *_ = jr.split(key, 4)
    full = data.load("default")
    train, test = data.split(full.train, 0.7, key=key_split, stratify=full.train[1])
    scale = data.Standardise.fit(train[0])
    return full, (scale(train[0]), train[1]), (scale(test[0]), test[1])
