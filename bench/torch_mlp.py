"""The peer of `mlp` in PyTorch.

The fastest variant depends on the sizes: fused or foreach Adam, one thread or all, and with
`torch.compile` the network alone or the step of the optimiser too. All are tried, and the fastest
is used.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .machine import cores
from .row import Missing, library

PROBE = 150  # steps to time each variant


class Variant(NamedTuple):
    """A variant of the training step."""

    threads: int
    adam: str  # "fused" or "foreach"
    update: bool = False  # compile the step of the optimiser too


class TorchMLP:
    """The network of a job in PyTorch, in the fastest variant."""

    def __init__(self, job: Any, *, compiled: bool, epochs: int):
        self.torch, self.job, self.compiled, self.epochs = library("torch"), job, compiled, epochs
        self.xs, self.ys = (self.torch.from_numpy(a) for a in job.data)
        variants = [
            Variant(threads, adam, update)
            for threads in sorted({1, cores()})
            for adam in ("fused", "foreach")
            for update in ((False, True) if compiled and adam == "foreach" else (False,))
        ]
        seconds = {variant: self._time(variant) for variant in variants}
        self.variant = min(variants, key=lambda variant: seconds[variant])
        if seconds[self.variant] == float("inf"):
            raise Missing(f"did not compile: {self.error}")
        self._build(self.variant)

    def cost(self) -> float:
        """Milliseconds per step over whole epochs."""
        self.torch.set_num_threads(self.variant.threads)
        start = time.perf_counter()
        steps = 0
        for _ in range(self.epochs):
            steps += self._epoch()
        return 1e3 * (time.perf_counter() - start) / steps

    def logits(self, xs: np.ndarray) -> np.ndarray:
        """The logits, without dropout."""
        self._build(self.variant)
        with self.torch.no_grad():
            return self.model.eval()(self.torch.from_numpy(xs)).numpy()

    def step(self, xs: np.ndarray, ys: np.ndarray) -> tuple[list, list]:
        """Gradient and weights after a step in evaluation mode; then the network is reset."""
        self._build(self.variant)
        self.model.eval()
        self.loss(self.model(self.torch.from_numpy(xs)), self.torch.from_numpy(ys)).backward()
        grads = self._layers(lambda p: p.grad)
        self.take(self.torch.from_numpy(xs), self.torch.from_numpy(ys))
        after = self._layers(lambda p: p)
        self._build(self.variant)
        return grads, after

    def dropout_losses(self, xs: np.ndarray, ys: np.ndarray, n: int) -> np.ndarray:
        """The loss with n random dropout masks."""
        with self.torch.no_grad():
            a = self.torch.from_numpy(xs)
            b = self.torch.from_numpy(ys)
            return np.array([self.loss(self.model.train()(a), b).item() for _ in range(n)])

    def _build(self, variant: Variant) -> None:
        torch, nn = self.torch, self.torch.nn
        torch.set_num_threads(variant.threads)
        parts = []
        probabilities = [*self.job.dropout, *[0.0] * len(self.job.layers)]
        for (W, b), p in zip(self.job.layers, probabilities):
            affine = nn.Linear(W.shape[1], W.shape[0])
            affine.weight.data, affine.bias.data = (
                torch.from_numpy(W.copy()),
                torch.from_numpy(b.copy()),
            )
            parts += [affine, nn.ReLU()] + ([nn.Dropout(p)] if p else [])
        self.model, self.loss = nn.Sequential(*parts[:-1]).train(), nn.CrossEntropyLoss()
        model = torch.compile(self.model) if self.compiled else self.model
        optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, **{variant.adam: True})

        update = torch.compile(optimiser.step) if variant.update else optimiser.step

        def take(xs, ys):
            optimiser.zero_grad(set_to_none=True)
            loss = self.loss(model(xs), ys)
            loss.backward()
            update()
            return loss.detach()

        self.take = take

    def _time(self, variant: Variant) -> float:
        try:
            self._build(variant)
            self._epoch(30)
            start = time.perf_counter()
            self._epoch(PROBE)
            return time.perf_counter() - start
        except Exception as error:
            if not self.compiled:
                raise
            self.error = str(error).strip().splitlines()[0][:80]
            return float("inf")

    def _epoch(self, max_steps: int | None = None) -> int:
        """One epoch in a random order; returns the number of steps."""
        total = self.torch.zeros(())
        order = self.torch.randperm(self.job.n).split(self.job.batch)[:max_steps]
        for rows in order:
            total += self.take(self.xs.index_select(0, rows), self.ys.index_select(0, rows))
        assert total.isfinite()
        return len(order)

    def _layers(self, of: Callable[[Any], Any]) -> list[tuple[np.ndarray, np.ndarray]]:
        affine = [part for part in self.model if isinstance(part, self.torch.nn.Linear)]
        return [
            tuple(of(p).detach().numpy().copy() for p in (part.weight, part.bias))
            for part in affine
        ]
