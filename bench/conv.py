"""Forward and backward pass of convolutional networks, against PyTorch: a small one for 28 by 28
images and a ResNet-8 for 32 by 32.

The loss is the mean cross-entropy of a batch; both sides compute its gradient in all weights.
PyTorch runs eagerly and compiled.
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

from thetax.layers import BatchNorm, Convolution, Linear
from thetax.models import CNN, ResNet, ResNetLayout
from thetax.train import cross_entropy

from .row import Missing, Row, Work, library

BATCH = 64
WIDTHS = (32, 64, 128)
WIDTH = 16


@dataclass(frozen=True, eq=False)
class Pair:
    """One of our networks, and the same in PyTorch."""

    name: str
    model: Any
    shape: tuple[int, int, int]
    build: Callable[[Any, Any], Any]
    compiled: bool = False
    repeats: int = 3

    @cached_property
    def batch(self) -> tuple[Any, Any]:
        """Noise, and labels."""
        xs = np.random.default_rng(0).standard_normal((BATCH, *self.shape), np.float32)
        return jnp.asarray(xs), jnp.arange(BATCH) % 10

    @cached_property
    def program(self) -> Any:
        """Value and gradients."""
        return jax.jit(jax.value_and_grad(cross_entropy))

    @cached_property
    def peer(self) -> tuple[Any, Any, Any, Any]:
        """Their network, its compiled form, and the batch."""
        torch = library("torch")
        net = self.build(torch, self.model)
        xs, ys = self.batch
        runs = torch.compile(net) if self.compiled else net
        return (
            net,
            runs,
            torch.tensor(np.asarray(xs)),
            torch.tensor(np.asarray(ys), dtype=torch.int64),
        )

    def ours_once(self) -> Any:
        """Runs ours and waits for the result."""
        return jax.block_until_ready(self.program(self.model, self.batch))

    def theirs_once(self) -> float:
        """Runs theirs."""
        net, runs, xs, ys = self.peer
        net.zero_grad()
        try:
            value = library("torch").nn.functional.cross_entropy(runs(xs), ys)
        except Exception as error:
            if self.compiled:
                raise Missing(f"cannot compile here: {type(error).__name__}") from None
            raise
        value.backward()
        return value.item()

    def check(self) -> None:
        """Raises unless the values and the gradients of all convolutions agree."""
        value, gradient = self.ours_once()
        np.testing.assert_allclose(value, self.theirs_once(), rtol=1e-4)
        torch = library("torch")
        theirs = [part for part in self.peer[0].modules() if isinstance(part, torch.nn.Conv2d)]
        for ours, part in zip(convolutions(gradient), theirs, strict=True):
            tolerance = 1e-3 * float(part.weight.grad.abs().max())
            np.testing.assert_allclose(ours.W, part.weight.grad.numpy(), atol=tolerance)

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
        """Two operations per product in the forward pass, four in the backward pass; activations
        are written and read three times.
        """
        operations = bytes_moved = 0.0
        for layer, pixels in zip(convolutions(self.model), self.output_pixels, strict=True):
            operations += 6 * BATCH * layer.W.size * pixels
            bytes_moved += 4 * 6 * BATCH * layer.W.shape[0] * pixels
        return Work(operations, bytes_moved)

    @cached_property
    def output_pixels(self) -> list[int]:
        """The number of output pixels of each convolution, in the order of the leaves."""
        side = self.shape[1]
        if isinstance(self.model, CNN):
            return [(side // 2**i) ** 2 for i in range(len(WIDTHS))]
        return [side**2] * 3 + [(side // 2) ** 2] * 3 + [(side // 4) ** 2] * 3


def convolutions(model: Any) -> list[Convolution]:
    """The convolutions of one of our networks, in the order of its leaves."""
    is_one = lambda node: isinstance(node, Convolution)
    return [node for node in jax.tree.leaves(model, is_leaf=is_one) if is_one(node)]


def parts(model: Any, kind: type) -> list[Any]:
    """The layers of one kind."""
    return [
        node
        for node in jax.tree.leaves(model, is_leaf=lambda n: isinstance(n, kind))
        if isinstance(node, kind)
    ]


def copy_weights(torch: Any, net: Any, model: Any) -> Any:
    """Their network with our weights; the layers are in the same order."""
    put = lambda tensor, array: tensor.copy_(torch.tensor(np.asarray(array)))
    with torch.no_grad():
        for kind, ours, names in (
            (torch.nn.Conv2d, convolutions(model), {"weight": "W", "bias": "b"}),
            (torch.nn.BatchNorm2d, parts(model, BatchNorm), {"weight": "gamma", "bias": "mu"}),
            (torch.nn.Linear, parts(model, Linear), {"weight": "W", "bias": "b"}),
        ):
            for theirs, layer in zip(
                [part for part in net.modules() if isinstance(part, kind)], ours, strict=True
            ):
                for name, letter in names.items():
                    if getattr(theirs, name, None) is not None:
                        put(getattr(theirs, name), getattr(layer, letter))
    return net


def small(torch: Any, model: CNN) -> Any:
    """Convolution, ReLU and pooling for each width, average pooling to 3 by 3, a linear layer."""
    nn = torch.nn
    layers = []
    c = 1
    for m in (len(part.W) for part in convolutions(model)):
        layers += [nn.Conv2d(c, m, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        c = m
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * c, 10))
    return copy_weights(torch, net, model)


def residual(torch: Any, model: ResNet) -> Any:
    """A stem, and three stages of one block each."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, c: int, m: int, stride: int):
            super().__init__()
            convolve = lambda a, s: nn.Conv2d(a, m, 3, stride=s, padding=1, bias=False)
            self.convolutions = nn.Sequential(
                convolve(c, stride), norm(m), nn.ReLU(), convolve(m, 1), norm(m)
            )
            skip = nn.Sequential(nn.Conv2d(c, m, 1, stride=stride, bias=False), norm(m))
            self.skip = nn.Identity() if c == m else skip

        def forward(self, x: Any) -> Any:
            return torch.relu(self.convolutions(x) + self.skip(x))

    norm = lambda m: nn.BatchNorm2d(m, eps=parts(model, BatchNorm)[0].eps)
    w = WIDTH
    stem = nn.Sequential(nn.Conv2d(3, w, 3, padding=1, bias=False), norm(w), nn.ReLU())
    blocks = [Block(w, w, 1), Block(w, 2 * w, 2), Block(2 * w, 4 * w, 2)]
    net = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, 10))
    return copy_weights(torch, net, model)


def describe() -> str:
    """A description of the work."""
    return (
        f"Value and gradients of a batch of {BATCH}; the small network: 28 by 28, widths {WIDTHS}; "
        f"ResNet-8: 32 by 32 in colour, widths {WIDTH}, {2 * WIDTH}, {4 * WIDTH}."
    )


def rows() -> list[Row]:
    """Both networks, against PyTorch eager and compiled."""
    cnn = CNN.init(WIDTHS, classes=10, key=jr.key(0))
    net = ResNet.init(ResNetLayout((1, 1, 1)), classes=10, width=WIDTH, small=True, key=jr.key(1))
    pairs = [
        Pair(name, model, shape, build, compiled)
        for name, model, shape, build in (
            ("small network", cnn, (1, 28, 28), small),
            ("ResNet-8", net, (3, 32, 32), residual),
        )
        for compiled in (False, True)
    ]
    return [
        Row(
            p.name,
            "torch.compile" if p.compiled else "torch eager",
            p.timed(p.ours_once),
            p.timed(p.theirs_once),
            "ms",
            p.check,
            target=None if p.compiled else 1.0,
            work=p.work,
        )
        for p in pairs
    ]
