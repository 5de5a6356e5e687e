"""The McCulloch-Pitts neuron, checked on every neuron and every input."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from ... import models
from ...layers import Chain
from ..engine.check import equal, refuted
from ..engine.claim import Verdict, claim


def _inputs(n):
    return np.array(list(product((0.0, 1.0), repeat=n)))


def _all_neurons(n):
    """Every σ with a threshold between any two sums of -n .. n, and the table of outputs, neuron by
    input.
    """
    sigma = np.repeat(np.array(list(product((-1.0, 1.0), repeat=n))), 2 * n + 2, axis=0)
    theta = np.tile(np.arange(-n, n + 2) - 0.5, 2**n)
    layer = models.McCullochPitts(jnp.asarray(sigma), jnp.asarray(theta))
    return sigma, theta, np.asarray(jax.vmap(layer)(jnp.asarray(_inputs(n)))).T


@claim(
    "1.1-mcculloch-pitts",
    title="What a McCulloch-Pitts neuron can compute",
    kind="model",
    of=("models.McCullochPitts",),
    cites="McCulloch & Pitts 1943",
)
def mcculloch_pitts(key):
    r"""$f[\sigma, \theta](x) = 1\{\sigma^\top x \ge \theta\}$ with $x \in \{0, 1\}^n$,
    $\sigma \in \{-1, +1\}^n$ and $\theta \in \mathbb{R}$. Over all $\sigma$ and $\theta$ these are
    $2 + n 2^n$ Boolean functions.
    """
    checks = []
    for n in (1, 2, 3, 4):
        sigma, theta, table = _all_neurons(n)
        by_hand = [
            [float(sum(s * a for s, a in zip(row, x)) >= t) for x in _inputs(n)]
            for row, t in zip(sigma, theta)
        ]
        checks += [
            equal(f"outputs, n = {n}", table, by_hand, method="brute force"),
            equal(f"distinct functions, n = {n}", len(np.unique(table, axis=0)), 2 + n * 2**n),
        ]
    fires_at = models.McCullochPitts(jnp.ones((1, 2)), jnp.array([2.0]))(jnp.ones(2))
    return Verdict(*checks, equal("σᵀx = θ fires", fires_at, [1.0]))


@claim(
    "1.1-mp-synapse-sign",
    title="Excitatory and inhibitory synapses",
    kind="identity",
    of=("models.McCullochPitts",),
    cites="McCulloch & Pitts 1943",
)
def synapse_sign(key):
    r"""A synapse $\sigma_i = +1$ excites: $f$ never falls when $x_i$ turns from 0 to 1. With
    $\sigma_i = -1$ it inhibits: $f$ never rises.
    """
    against, along, changed = 0, 0, 0
    for n in range(1, 6):
        sigma, _, table = _all_neurons(n)
        xs = _inputs(n)
        for i in range(n):
            change = (
                table[:, xs[:, i] == 1] - table[:, xs[:, i] == 0]
            )  # pairs that differ in x_i alone
            against += int((sigma[:, [i]] * change < 0).sum())
            along += int((sigma[:, [i]] * change > 0).sum())
            changed += int((change != 0).sum())
    return Verdict(
        equal("number of changes against the sign, n ≤ 5", against, 0, method="brute force"),
        equal("every change has the sign of the synapse", along, changed, method="brute force"),
        refuted(equal("changes against the swapped sign", along, 0, method="brute force")),
    )


@claim(
    "1.1-mp-gates",
    title="Gates of one neuron, and XOR of two layers",
    kind="experiment",
    of=("models.McCullochPitts", "layers.Chain"),
    cites="McCulloch & Pitts 1943; Minsky & Papert 1969",
)
def gates(key):
    r"""One neuron on two inputs realises AND, OR, NAND and NOR, and on one input NOT; it realises
    neither XOR nor, as no $\sigma_i$ can be 0, the value of a single input. AND of OR and NAND is
    XOR, in two layers.
    """
    xs = _inputs(2)
    a, b = xs.T.astype(bool)
    possible = {"AND": a & b, "OR": a | b, "NAND": ~(a & b), "NOR": ~(a | b)}
    impossible = {"XOR": a ^ b, "first input": a, "second input": b}
    functions_2 = {tuple(row.astype(bool)) for row in _all_neurons(2)[2]}
    functions_1 = {tuple(row.astype(bool)) for row in _all_neurons(1)[2]}
    weights = np.array([[1.0, 1.0], [-1.0, -1.0]])
    ones = np.ones((1, 2))
    net = Chain(
        models.McCullochPitts(jnp.asarray(weights), jnp.array([1.0, -1.0])),
        models.McCullochPitts(jnp.asarray(ones), jnp.array([2.0])),
    )
    return Verdict(
        *[
            equal(f"{name} is realised", tuple(gate) in functions_2, True, method="brute force")
            for name, gate in possible.items()
        ],
        equal("NOT is realised", (True, False) in functions_1, True, method="brute force"),
        *[
            equal(f"{name} is realised", tuple(gate) in functions_2, False, method="brute force")
            for name, gate in impossible.items()
        ],
        equal(
            "AND of OR and NAND is XOR", jax.vmap(net)(jnp.asarray(xs))[:, 0], (a ^ b).astype(float)
        ),
    )
