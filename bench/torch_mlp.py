"""Torch's side of `mlp`, as someone who knows it would write it.

Which form is fastest depends on the sizes: Adam fused or by lists, one thread or all, and under
`torch.compile` the network alone or the optimiser's step too. All are tried; the fastest speaks for
torch.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .machine import cores
from .row import Missing, library

PROBE = 150  # steps by which a form is judged


class Form(NamedTuple):
    """One way of running the same training step."""

    threads: int
    adam: str  # "fused" or "foreach"
    update: bool = False  # compile the optimiser's step too


class TorchMLP:
    """The network of a job in torch, with its best form chosen."""

    def __init__(self, job: Any, *, compiled: bool, epochs: int):
        self.torch, self.job, self.compiled, self.epochs = library("torch"), job, compiled, epochs
        self.xs, self.ys = (self.torch.from_numpy(a) for a in job.data)
        forms = [
            Form(threads, adam, update)
            for threads in sorted({1, cores()})
            for adam in ("fused", "foreach")
            for update in ((False, True) if compiled and adam == "foreach" else (False,))
        ]
        seconds = {form: self._judge(form) for form in forms}
        self.form = min(forms, key=lambda form: seconds[form])
        if seconds[self.form] == float("inf"):
            raise Missing(f"did not compile: {self.trouble}")
        self._build(self.form)

    def cost(self) -> float:
        """Milliseconds a step over whole epochs."""
        self.torch.set_num_threads(self.form.threads)
        began = time.perf_counter()
        steps = 0
        for _ in range(self.epochs):
            steps += self._epoch()
        return 1e3 * (time.perf_counter() - began) / steps

    def logits(self, xs: np.ndarray) -> np.ndarray:
        """The network's answers, without dropout."""
        self._build(self.form)
        with self.torch.no_grad():
            return self.model.eval()(self.torch.from_numpy(xs)).numpy()

    def step(self, xs: np.ndarray, ys: np.ndarray) -> tuple[list, list]:
        """Gradient and weights after the very step that is timed, in evaluation mode; then all
        begins anew.
        """
        self._build(self.form)
        self.model.eval()
        self.loss(self.model(self.torch.from_numpy(xs)), self.torch.from_numpy(ys)).backward()
        grads = self._layers(lambda p: p.grad)
        self.take(self.torch.from_numpy(xs), self.torch.from_numpy(ys))
        after = self._layers(lambda p: p)
        self._build(self.form)
        return grads, after

    def dropped(self, xs: np.ndarray, ys: np.ndarray, draws: int) -> np.ndarray:
        """The loss of some draws of dropout."""
        with self.torch.no_grad():
            a = self.torch.from_numpy(xs)
            b = self.torch.from_numpy(ys)
            return np.array([self.loss(self.model.train()(a), b).item() for _ in range(draws)])

    def _build(self, form: Form) -> None:
        torch, nn = self.torch, self.torch.nn
        torch.set_num_threads(form.threads)
        parts = []
        rates = [*self.job.dropout, *[0.0] * len(self.job.layers)]
        for (W, b), rate in zip(self.job.layers, rates):
            affine = nn.Linear(W.shape[1], W.shape[0])
            affine.weight.data, affine.bias.data = (
                torch.from_numpy(W.copy()),
                torch.from_numpy(b.copy()),
            )
            parts += [affine, nn.ReLU()] + ([nn.Dropout(rate)] if rate else [])
        self.model, self.loss = nn.Sequential(*parts[:-1]).train(), nn.CrossEntropyLoss()
        model = torch.compile(self.model) if self.compiled else self.model
        optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, **{form.adam: True})

        update = torch.compile(optimiser.step) if form.update else optimiser.step

        def take(xs, ys):
            optimiser.zero_grad(set_to_none=True)
            loss = self.loss(model(xs), ys)
            loss.backward()
            update()
            return loss.detach()

        self.take = take

    def _judge(self, form: Form) -> float:
        try:
            self._build(form)
            self._epoch(30)
            began = time.perf_counter()
            self._epoch(PROBE)
            return time.perf_counter() - began
        except Exception as error:
            if not self.compiled:
                raise
            self.trouble = str(error).strip().splitlines()[0][:80]
            return float("inf")

    def _epoch(self, most: int | None = None) -> int:
        """Visits the data in a new order; returns the steps taken."""
        total = self.torch.zeros(())
        order = self.torch.randperm(self.job.n).split(self.job.batch)[:most]
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
