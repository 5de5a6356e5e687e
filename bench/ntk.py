"""The tangent kernel of finite networks, against Jacobians and their products by torch.func.

A dense network with 64 examples and all pairs of its ten outputs, and a small convolutional network
with 2,000 examples and the trace over the outputs, in blocks on both sides. Our peak memory is
measured in a separate process.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax.explain import TangentKernel, ntk
from thetax.models import CNN, MLP

from .conv import copy_weights, small
from .row import Result, Row, Work, library

SIZES = (784, 512, 512, 10)
WIDTHS = (16, 32)
ROWS = 100


@dataclass(frozen=True, eq=False)
class Job:
    """A network, the same in PyTorch, and the number of examples."""

    name: str
    model: Any
    form: Any
    shape: tuple[int, ...]
    build: Callable[[Any, Any], Any]
    batch_size: int | None = None

    @cached_property
    def xs(self) -> np.ndarray:
        """Noise."""
        return np.random.default_rng(0).standard_normal(self.shape, np.float32)

    @cached_property
    def kernel(self) -> TangentKernel:
        """Ours."""
        return ntk(self.model, form=self.form, batch_size=self.batch_size)

    def ours(self) -> Any:
        """Computes the kernel."""
        return jax.block_until_ready(self.kernel(jnp.asarray(self.xs)))

    def theirs(self) -> Any:
        """Jacobians of blocks of rows, and the products of all pairs."""
        torch = library("torch")
        xs = library("torch").tensor(self.xs)
        net = self.net
        theta = {name: value.detach() for name, value in net.named_parameters()}
        one = lambda theta, x: torch.func.functional_call(net, theta, (x[None],))[0]
        jacobian = torch.func.vmap(torch.func.jacrev(one), (None, 0))
        parts = [
            [leaf.flatten(2) for leaf in jacobian(theta, block).values()]
            for block in xs.split(ROWS)
        ]
        subscripts = "nop,mqp->nmoq" if self.form == "full" else "nop,mop->nm"
        pair = lambda a, b: sum(torch.einsum(subscripts, x, y) for x, y in zip(a, b, strict=True))
        return torch.cat([torch.cat([pair(a, b) for b in parts], 1) for a in parts])

    @cached_property
    def net(self) -> Any:
        """Theirs."""
        return self.build(library("torch"), self.model)

    def check(self) -> None:
        """Raises unless every entry agrees."""
        theirs = self.theirs().numpy()
        np.testing.assert_allclose(self.ours(), theirs, atol=1e-4 * np.abs(theirs).max())

    def timed(self, once: Callable[[], Any]) -> Callable[[], float]:
        """Milliseconds."""

        def measure() -> float:
            start = time.perf_counter()
            once()
            return 1e3 * (time.perf_counter() - start)

        return measure

    @property
    def work(self) -> Work:
        """The multiplications of the plan; every entry is written."""
        xs = jax.ShapeDtypeStruct(self.shape, np.float32)
        entries = self.shape[0] ** 2 * (100 if self.form == "full" else 1)
        return Work(2 * self.kernel.plan(np.empty(xs.shape, xs.dtype)).multiplications, 4 * entries)


def dense(torch: Any, model: MLP) -> Any:
    """Linear maps and ReLUs."""
    nn = torch.nn
    layers = []
    for c, m in itertools.pairwise(SIZES):
        layers += [nn.Linear(c, m), nn.ReLU()]
    return copy_weights(torch, nn.Sequential(*layers[:-1]), model)


def jobs() -> dict[str, Job]:
    """Both, by name."""
    mlp = MLP.init(*SIZES, key=jr.key(0))
    cnn = CNN.init(WIDTHS, classes=10, key=jr.key(1))
    return {
        "mlp": Job("MLP 784-512-512-10, n = 64, all outputs", mlp, "full", (64, 784), dense),
        "cnn": Job(
            "CNN of 16 and 32 channels, n = 2,000, trace",
            cnn,
            "trace",
            (2000, 1, 28, 28),
            small,
            batch_size=ROWS,
        ),
    }


def peak(_: Result) -> str:
    """Peak memory of a separate process, and its peak before the computation, from Linux."""
    script = (
        "import re; from bench.ntk import jobs; job = jobs()['cnn'];"
        "most = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) "
        "/ 1e6;"
        "job.xs; before = most(); job.ours(); print(f'{before:.2f} {most():.2f}')"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    before, after = process.stdout.split()
    return f"peak memory {after} GB, {before} GB before"


def describe() -> str:
    """A description of the work."""
    return (
        "Tangent kernels of finite networks; torch.func contracts the Jacobians of single examples."
    )


def rows() -> list[Row]:
    """The dense network and the convolutional one."""
    mlp, cnn = jobs().values()
    row = lambda job, **more: Row(
        job.name,
        "torch.func",
        job.timed(job.ours),
        job.timed(job.theirs),
        "ms",
        job.check,
        work=job.work,
        **more,
    )
    return [row(mlp, target=100.0, pairs=5), row(cnn, pairs=3, remark=peak)]
