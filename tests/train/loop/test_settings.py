"""Tokens are checked before training: the extremes at each position, as one example."""

import jax.numpy as jnp
import numpy as np
import pytest

from thetax.layers import Chain, Embedding, LearnedPositions
from thetax.train.loop.settings import _check_tokens

pytestmark = pytest.mark.usefixtures("unchecked")


def test_the_model_sees_the_extremes_at_each_position():
    """For two tokens an example and more examples than the model has positions."""
    model = Chain(Embedding(jnp.ones((9, 1))), LearnedPositions(jnp.zeros((2, 1))))
    tokens = np.array([[3, 8], [0, 5], [7, -1]])
    seen = []

    def recorded(x):
        seen.append(x.tolist())
        return x

    _check_tokens("data[0]", tokens, Chain(recorded, model.layers[0]))
    assert seen == [[7, 8], [0, -1]]
    _check_tokens("data[0]", tokens, model)


@pytest.mark.parametrize("bad", [9, -2])
def test_a_token_outside_the_vocabulary_is_named(bad):
    model = Embedding(jnp.ones((9, 1)))
    with pytest.raises(ValueError, match=rf"data\[0\]: .*between 0 and 8.* got {bad}"):
        _check_tokens("data[0]", np.array([[3, 8], [0, bad], [7, 1]]), model)
