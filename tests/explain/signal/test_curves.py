"""The number of epochs of training curves."""

import numpy as np

from thetax import explain


def test_epochs_is_the_longest_curve():
    history = {"train loss": np.ones(3), "valid error": np.ones(2)}
    assert explain.training_curves(history).epochs == 3
    assert explain.training_curves({}).epochs == 0
