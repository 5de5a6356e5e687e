"""The labels of an alignment: the tokens that the decoder writes."""

import jax.numpy as jnp
import jax.random as jr

from thetax import explain
from thetax.models import EncoderDecoder


def test_the_last_row_is_labelled_with_the_most_probable_token():
    model = EncoderDecoder.init(7, 5, 3, 4, attention_width=6, key=jr.key(0))
    source, target = jnp.array([2, 3, -1]), jnp.array([0, 4, 3])
    result = explain.attention_alignment(model, source, target)
    last = int(model((source, target))[2].argmax())
    assert result.source == ("2", "3")
    assert result.target == ("4", "3", str(last))
