"""Forward and backward pass of a transformer encoder of 4 layers of width 256, against PyTorch.

The loss is the mean square of the outputs; both sides compute its gradient in all weights.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax.models import Trunk

from .row import Row, Work, library

DEPTH, WIDTH, HEADS, HIDDEN = 4, 256, 4, 1024


@dataclass(frozen=True, eq=False)
class Pair:
    """Our encoder and that of PyTorch, for a batch of sequences."""

    batch: int
    length: int
    repeats: int = 3

    @cached_property
    def model(self) -> Trunk:
        """Post-norm, ReLU."""
        return Trunk.init(DEPTH, WIDTH, HEADS, HIDDEN, norms="after", key=jr.key(0))

    @cached_property
    def xs(self) -> Any:
        """Noise."""
        return jnp.asarray(
            np.random.default_rng(0).standard_normal((self.batch, self.length, WIDTH), np.float32)
        )

    @cached_property
    def program(self) -> Any:
        """Value and gradients."""
        return jax.jit(jax.value_and_grad(lambda model, xs: jnp.square(jax.vmap(model)(xs)).mean()))

    @cached_property
    def peer(self) -> tuple[Any, Any]:
        """PyTorch's encoder with our weights, and the batch."""
        torch = library("torch")
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True
        )
        net = torch.nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        ours = self.model.blocks.layers
        with torch.no_grad():
            for at, part in enumerate(net.layers):
                for theirs, leaf in pairs_of(part, ours):
                    theirs.copy_(torch.tensor(np.asarray(leaf[at])))
                joined = lambda letter, at=at: torch.tensor(
                    np.concatenate(
                        [
                            np.asarray(getattr(w, letter)[at])
                            for w in (ours.attention.Q, ours.attention.K, ours.attention.V)
                        ]
                    )
                )
                part.self_attn.in_proj_weight.copy_(joined("W"))
                part.self_attn.in_proj_bias.copy_(joined("b"))
        return net.train(), torch.tensor(np.asarray(self.xs))

    def ours_once(self) -> Any:
        """Runs ours and waits for the result."""
        return jax.block_until_ready(self.program(self.model, self.xs))

    def theirs_once(self) -> float:
        """Runs theirs."""
        net, xs = self.peer
        net.zero_grad()
        value = net(xs).square().mean()
        value.backward()
        return value.item()

    def check(self) -> None:
        """Raises unless the values and the gradients of all feed-forward layers agree."""
        value, gradient = self.ours_once()
        np.testing.assert_allclose(value, self.theirs_once(), rtol=1e-4)
        for at, part in enumerate(self.peer[0].layers):
            theirs = part.linear1.weight.grad.numpy()
            np.testing.assert_allclose(
                gradient.blocks.layers.feed.up.W[at],
                theirs,
                atol=1e-3 * float(np.abs(theirs).max()) + 1e-9,
            )

    def timed(self, once: Callable[[], Any]) -> Callable[[], float]:
        """Milliseconds of a value and its gradients."""

        def measure() -> float:
            start = time.perf_counter()
            for _ in range(self.repeats):
                once()
            return 1e3 * (time.perf_counter() - start) / self.repeats

        return measure

    @property
    def work(self) -> Work:
        """Six operations per weight and token, and twelve per pair of tokens and channel."""
        tokens = self.batch * self.length
        weights = DEPTH * (4 * WIDTH**2 + 2 * WIDTH * HIDDEN)
        operations = 6 * tokens * weights + 12 * DEPTH * tokens * self.length * WIDTH
        return Work(
            operations, 4 * 3 * DEPTH * tokens * (8 * WIDTH + 2 * HIDDEN + 2 * HEADS * self.length)
        )


def pairs_of(part: Any, ours: Any) -> list[tuple[Any, Any]]:
    """Their tensors and our leaves, without those of queries, keys and values."""
    return [
        (part.self_attn.out_proj.weight, ours.attention.O.W),
        (part.self_attn.out_proj.bias, ours.attention.O.b),
        (part.linear1.weight, ours.feed.up.W),
        (part.linear1.bias, ours.feed.up.b),
        (part.linear2.weight, ours.feed.down.W),
        (part.linear2.bias, ours.feed.down.b),
        (part.norm1.weight, ours.norm.gamma),
        (part.norm1.bias, ours.norm.mu),
        (part.norm2.weight, ours.feed_norm.gamma),
        (part.norm2.bias, ours.feed_norm.mu),
    ]


def describe() -> str:
    """A description of the work."""
    return (
        f"Value and gradients of an encoder: {DEPTH} layers of width {WIDTH}, {HEADS} heads, "
        f"hidden width {HIDDEN}."
    )


def rows() -> list[Row]:
    """Short and long sequences."""
    pairs = [Pair(16, 128), Pair(4, 512)]
    return [
        Row(
            f"encoder, {p.batch} by {p.length} tokens",
            "torch eager",
            p.timed(p.ours_once),
            p.timed(p.theirs_once),
            "ms",
            p.check,
            target=1.0,
            work=p.work,
        )
        for p in pairs
    ]
