"""Forward and backward pass of recurrent layers, against PyTorch: its LSTM and GRU, and a loop for
linear recurrences.

The loss is the mean square of the outputs; both sides compute its gradient in all weights and in
the input.
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

from thetax.layers import GRU, LRU, LSTM, MinGRU, Recurrent

from .row import Row, Work, library

LENGTH, SIZE, BATCH = 128, 256, 32
LONG = 4096
STATES = 64
SMALL_BATCHES = (1, 8)


def loss(layer: Any, xs: jax.Array) -> jax.Array:
    """The mean square of the outputs."""
    return jnp.mean(jnp.square(jax.vmap(layer)(xs)))


@dataclass(frozen=True, eq=False)
class Pair:
    """One of our cells, and the same in PyTorch: a module, or a loop over time."""

    name: str
    cell: Any
    length: int
    batch: int
    theirs: Callable[[Any, Any], tuple[Callable[[Any], Any], dict[str, Any]]]
    repeats: int = 3

    @cached_property
    def xs(self) -> np.ndarray:
        """Noise."""
        inputs = (self.cell.C if isinstance(self.cell, LRU) else self.cell.V).shape[-1]
        return np.random.default_rng(0).standard_normal(
            (self.batch, self.length, inputs), np.float32
        )

    @cached_property
    def program(self) -> Any:
        """Value and gradients."""
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

    @cached_property
    def peer(self) -> tuple[Any, dict[str, Any], Any]:
        """Their function, its weights by our names, and the input."""
        torch = library("torch")
        run, weights = self.theirs(torch, self.cell)
        return run, weights, torch.tensor(self.xs, requires_grad=True)

    def ours_once(self) -> Any:
        """Runs ours and waits for the result."""
        return jax.block_until_ready(self.program(Recurrent(self.cell), jnp.asarray(self.xs)))

    def theirs_once(self) -> float:
        """Runs theirs."""
        run, weights, xs = self.peer
        for weight in (*weights.values(), xs):
            weight.grad = None
        value = run(xs).square().mean()
        value.backward()
        return value.item()

    def check(self) -> None:
        """Raises unless value and gradients agree."""
        value, (gradient, dx) = self.ours_once()
        np.testing.assert_allclose(value, self.theirs_once(), rtol=1e-4)
        _, weights, xs = self.peer
        for name, weight in weights.items():
            theirs = weight.grad.numpy()
            tolerance = 1e-3 * float(weight.grad.abs().max())
            np.testing.assert_allclose(
                getattr(gradient.cell, name), theirs, atol=tolerance, err_msg=name
            )
        np.testing.assert_allclose(dx, xs.grad.numpy(), atol=1e-3 * float(xs.grad.abs().max()))

    def timed(self, once: Callable[[], Any]) -> Callable[[], float]:
        """Milliseconds of a value and its gradients."""

        def measure() -> float:
            start = time.perf_counter()
            for _ in range(self.repeats):
                once()
            return 1e3 * (time.perf_counter() - start) / self.repeats

        return measure

    @property
    def work(self) -> Work | None:
        """Six operations per weight, time and example; inputs and gates are read and written."""
        if isinstance(self.cell, LRU | MinGRU):
            return None
        weights = self.cell.U.size + self.cell.V.size
        gates = len(self.cell.b)
        n_steps = self.length * self.batch
        return Work(6 * weights * n_steps, 4 * n_steps * (3 * self.xs.shape[-1] + 4 * gates))


def module(kind: str) -> Callable[[Any, Any], tuple[Callable[[Any], Any], dict[str, Any]]]:
    """PyTorch's layer with our weights."""

    def build(torch: Any, cell: Any) -> tuple[Callable[[Any], Any], dict[str, Any]]:
        net = getattr(torch.nn, kind)(cell.V.shape[1], cell.U.shape[1], batch_first=True)
        with torch.no_grad():
            net.bias_hh_l0.zero_()
            for name, ours in (
                ("weight_hh_l0", cell.U),
                ("weight_ih_l0", cell.V),
                ("bias_ih_l0", cell.b),
            ):
                getattr(net, name).copy_(torch.tensor(np.asarray(ours)))
        return lambda xs: net(xs)[0], {
            "U": net.weight_hh_l0,
            "V": net.weight_ih_l0,
            "b": net.bias_ih_l0,
        }

    return build


def weights_of(torch: Any, cell: Any, names: str) -> dict[str, Any]:
    """Our weights as tensors of PyTorch."""
    return {
        name: torch.tensor(np.asarray(getattr(cell, name)), requires_grad=True)
        for name in names.split()
    }


def min_gru(torch: Any, cell: MinGRU) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """A loop over time."""
    w = weights_of(torch, cell, "G V g v")

    def run(xs: Any) -> Any:
        keep = torch.sigmoid(xs @ w["G"].T + w["g"])
        new = (1 - keep) * (xs @ w["V"].T + w["v"])
        z = 0.0
        zs = []
        for a, b in zip(keep.unbind(1), new.unbind(1)):
            z = a * z + b
            zs.append(z)
        return torch.stack(zs, 1)

    return run, w


def lru(torch: Any, cell: LRU) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """A loop over time."""
    w = weights_of(torch, cell, "nu phi C G")

    def run(xs: Any) -> Any:
        eigenvalues = torch.exp(torch.complex(-torch.exp(w["nu"]), w["phi"]))
        new = torch.complex(xs @ w["C"][0].T, xs @ w["C"][1].T)
        z = 0.0
        zs = []
        for b in new.unbind(1):
            z = eigenvalues * z + b
            zs.append(z)
        states = torch.stack(zs, 1)
        return states.real @ w["G"][0].T - states.imag @ w["G"][1].T

    return run, w


def describe() -> str:
    """A description of the work."""
    return (
        f"Value and gradients; LSTM and GRU: {LENGTH} time steps, {SIZE} inputs and units, batch "
        f"{BATCH}; linear recurrences: {LONG} time steps, {STATES} states."
    )


def rows() -> list[Row]:
    """Gated cells against the fused ones of PyTorch, linear cells against a loop."""
    gated = {
        "LSTM": LSTM.init(SIZE, SIZE, key=jr.key(0)),
        "GRU": GRU.init(SIZE, SIZE, reset_after=True, key=jr.key(1)),
    }
    linear = {
        "minGRU": (MinGRU.init(STATES, STATES, key=jr.key(2)), min_gru),
        "LRU": (LRU.init(STATES, STATES, STATES, key=jr.key(3)), lru),
    }
    pairs = [
        (Pair(n, cell, LENGTH, BATCH, module(n)), f"torch.nn.{n}", 1.0) for n, cell in gated.items()
    ]
    pairs += [
        (Pair(f"{n}, batch {batch}", cell, LONG, batch, peer, 1), "a loop in torch", 20.0)
        for n, (cell, peer) in linear.items()
        for batch in SMALL_BATCHES
    ]
    return [
        Row(
            p.name,
            peer,
            p.timed(p.ours_once),
            p.timed(p.theirs_once),
            "ms",
            p.check,
            target=target,
            work=p.work,
        )
        for p, peer, target in pairs
    ]
