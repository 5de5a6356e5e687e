"""Training of a multi-layer perceptron: the time of a step of Adam, with all overhead.

Ours is `thetax.train.fit` with shuffling, gathering of batches, dropout, metrics and the check for
NaN. The peers have the same weights, data and batches in memory, in their fastest form.
"""

import time
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import tree
from thetax.layers import Linear
from thetax.models import MLP
from thetax.train import FitResult, Silent, binary_cross_entropy, cross_entropy, descend, fit

from .row import Row, Work
from .sklearn_mlp import SklearnMLP
from .torch_mlp import TorchMLP

LEARNING_RATE = 1e-3
Layers = list[tuple[np.ndarray, np.ndarray]]  # W (m, n) and b (m,) of each layer


class Peer(Protocol):
    """The interface of a peer."""

    def cost(self) -> float:
        """Milliseconds per step, over whole epochs."""
        ...

    def logits(self, xs: np.ndarray) -> np.ndarray:
        """The logits of the untrained network, without dropout."""
        ...

    def step(self, xs: np.ndarray, ys: np.ndarray) -> tuple[Layers | None, Layers]:
        """The gradient (None if not available) and the weights after the first step, without
        dropout.
        """
        ...

    def dropout_losses(self, xs: np.ndarray, ys: np.ndarray, n: int) -> np.ndarray | None:
        """The loss with n random dropout masks; None if the peer has no dropout."""
        ...


class Job:
    """A network, its data, batch size and number of epochs."""

    def __init__(
        self,
        name: str,
        *sizes: int,
        dropout: tuple[float, ...] = (),
        n: int,
        batch: int,
        epochs: int,
    ):
        self.name, self.sizes, self.dropout = name, sizes, dropout
        self.n, self.batch, self.epochs = n, batch, epochs
        self.objective = binary_cross_entropy if sizes[-1] == 1 else cross_entropy
        self.iteration = descend(self.objective, optax.adam(LEARNING_RATE))

    @cached_property
    def model(self) -> MLP:
        """The initial network."""
        return MLP.init(*self.sizes, dropout=self.dropout or 0.0, key=jr.key(0))

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Noise: the time of a step does not depend on the data."""
        rng = np.random.default_rng(0)
        xs = rng.standard_normal((self.n, self.sizes[0]), np.float32)
        return xs, rng.integers(0, max(2, self.sizes[-1]), self.n)

    @cached_property
    def on_device(self) -> tuple[jax.Array, jax.Array]:
        """The same on the device of JAX."""
        return jnp.asarray(self.data[0]), jnp.asarray(self.data[1], jnp.int32)

    @cached_property
    def layers(self) -> Layers:
        """The weights, for a peer to copy."""
        return layers(self.model)

    def cost(self) -> float:
        """Milliseconds per step of a whole `fit`."""
        start = time.perf_counter()
        result = fit(
            self.iteration,
            self.model,
            self.on_device,
            epochs=self.epochs,
            batch_size=self.batch,
            key=jr.key(1),
            progress=Silent(),
        )
        return 1e3 * (time.perf_counter() - start) / expect_finished(result).steps

    @property
    def work(self) -> Work:
        """Three products per layer (two in the first, without a gradient of its input); weights
        and moments are read and written.
        """
        products = [n * m for n, m in zip(self.sizes, self.sizes[1:])]
        operations = 2 * self.batch * (3 * sum(products) - products[0])
        return Work(operations, 4 * (6 * tree.size(self.model) + self.batch * self.sizes[0]))


def expect_finished(result: FitResult) -> FitResult:
    """The result of a fit; raises `KeyboardInterrupt` if the fit was interrupted."""
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    return result


def layers(model: Any) -> Layers:
    """The affine maps of a network, in order."""
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, Linear))
    return [(np.array(node.W), np.array(node.b)) for node in nodes if isinstance(node, Linear)]


def agree(job: Job, peer: Callable[[], Peer]) -> None:
    """Raises unless outputs, gradients, one step of Adam and the mean loss with dropout agree."""
    theirs = peer()
    xs = job.data[0][: job.batch]
    ys = job.data[1][: job.batch]
    batch = jnp.asarray(xs), jnp.asarray(ys, jnp.int32)
    np.testing.assert_allclose(
        theirs.logits(xs), jax.vmap(job.model)(batch[0]), rtol=1e-3, atol=1e-4
    )
    grads = layers(jax.grad(job.objective)(job.model, batch))
    after = layers(job.iteration.step(job.iteration.init(job.model), batch, key=None)[0].model)
    their_grads, their_after = theirs.step(xs, ys)
    if their_grads is not None:
        _close(grads, their_grads, [[True] * 2] * len(grads), 1e-3, 1e-6)
    # Adam's first step is the sign of the gradient, which rounding determines where it is almost 0
    clear = [[np.abs(part) > 1e-5 for part in layer] for layer in grads]
    _close(after, their_after, clear, 1e-4, LEARNING_RATE / 20)
    if (losses := theirs.dropout_losses(xs, ys, 400)) is not None and job.dropout:
        ours = jax.vmap(lambda key: job.objective(job.model, batch, key=key))(
            jr.split(jr.key(2), len(losses))
        )
        error = np.sqrt((np.var(ours) + np.var(losses)) / len(losses))
        assert abs(np.mean(ours) - np.mean(losses)) < 5 * error, (
            "the mean losses with dropout differ"
        )


def _close(ours: Layers, theirs: Layers, where: list, rtol: float, atol: float) -> None:
    for mine, other, at in zip(ours, theirs, where, strict=True):
        for a, b, clear in zip(mine, other, at, strict=True):
            np.testing.assert_allclose(
                np.where(clear, b, 0), np.where(clear, a, 0), rtol=rtol, atol=atol
            )


def _row(job: Job, name: str, peer: Callable[[], Peer], target: float) -> Row:
    peer = cache(peer)
    check = partial(agree, job, peer)
    return Row(
        job.name,
        name,
        job.cost,
        lambda: peer().cost(),
        "ms/step",
        check,
        target=target,
        work=job.work,
    )


@cache
def jobs() -> tuple[Job, Job, Job, Job]:
    """Networks for MNIST and for a toy problem, each also in a form for scikit-learn."""
    big = partial(Job, n=59_904, batch=128, epochs=4)
    small = partial(Job, n=6_400, batch=64, epochs=250)
    return (
        big("784-256-128-10, dropout", 784, 256, 128, 10, dropout=(0.4, 0.3)),
        big("784-256-128-10", 784, 256, 128, 10),
        small("2-32-32-2", 2, 32, 32, 2),
        small("2-32-32-1", 2, 32, 32, 1),
    )


def describe() -> str:
    """A description of the work."""
    return (
        "A training step with Adam (learning rate 0.001). MNIST: dropout 0.4 and 0.3, batches of "
        "128 of 59,904 examples; toy problem: batches of 64 of 6,400."
    )


def rows() -> list[Row]:
    """PyTorch eager and compiled, and scikit-learn (no dropout, a single logit for two classes)."""
    mnist, mnist_plain, toy, toy_binary = jobs()
    return [
        _row(mnist, "torch eager", lambda: TorchMLP(mnist, compiled=False, epochs=1), 2.0),
        _row(mnist, "torch.compile", lambda: TorchMLP(mnist, compiled=True, epochs=1), 1.5),
        _row(mnist_plain, "scikit-learn", lambda: SklearnMLP(mnist_plain, epochs=1), 5.0),
        _row(toy, "torch eager", lambda: TorchMLP(toy, compiled=False, epochs=25), 10.0),
        _row(toy, "torch.compile", lambda: TorchMLP(toy, compiled=True, epochs=25), 1.5),
        _row(toy_binary, "scikit-learn", lambda: SklearnMLP(toy_binary, epochs=25), 5.0),
    ]
