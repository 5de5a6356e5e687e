"""§1.4, the network: its energy, and the updates that lower it."""

from itertools import product
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import models
from ...plot import Panel
from ..engine.check import at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum


def random_couplings(key, d):
    """A random symmetric matrix with zero diagonal, and random thresholds."""
    key_W, key_b = jr.split(key)
    W = jr.normal(key_W, (d, d))
    W = (W + W.T) / 2
    return W - jnp.diag(jnp.diag(W)), jr.normal(key_b, (d,))


def random_patterns(key, n, d):
    """Independent fair random signs, one pattern a row."""
    return jr.rademacher(key, (n, d), float)


def looped_energy(W, b, x):
    """The double sum, term by term."""
    d = len(x)
    return -0.5 * sum(W[i, j] * x[i] * x[j] for i in range(d) for j in range(d)) + sum(
        b[i] * x[i] for i in range(d)
    )


def all_states(d):
    """All corners of the cube {-1, 1}^d, one a row."""
    return np.array(list(product([-1.0, 1.0], repeat=d)))


def each(f, xs):
    """`f` of every row, as a NumPy array."""
    return np.asarray(jax.vmap(f)(jnp.asarray(xs)))


def set_site(xs, i, value):
    """The states with site i set to `value`."""
    xs = xs.copy()
    xs[:, i] = value
    return xs


@claim(
    "1.4-energy",
    title="Energy of a Hopfield network",
    kind="definition",
    of=("models.Hopfield",),
    cites="Hopfield 1982",
)
def energy(key):
    r"""A state $x \in \{-1, +1\}^d$ has the energy
    $H(x) = -\frac12 \sum_{i,j=1}^d w_{ij} x_i x_j + \sum_{i=1}^d b_i x_i$."""
    key_net, key_x = jr.split(key)
    W, b = random_couplings(key_net, 9)
    xs = random_patterns(key_x, 20, 9)
    energies = each(models.Hopfield(W, b).energy, xs)
    expected = [looped_energy(*map(np.asarray, (W, b, x))) for x in xs]
    return Verdict(close("energy of 20 states, against the double sum", energies, expected))


@erratum(
    "1.4-energy",
    title="The thresholds are summed over all sites",
    of=("models.Hopfield",),
    printed=r"\sum_{i=1}^{n} b_i X_i",
    corrected=r"\sum_{i=1}^{d} b_i X_i",
    cites="Hopfield 1982",
    slip=True,
)
def energy_erratum(key):
    r"""The state has $d$ sites, and $n$ counts the patterns, so the thresholds are summed to $d$:
    only then is $H(x_i = +1) - H(x_i = -1) = -2 H_i$ at every site, $H_i$ being the field. (The sum
    in the field is printed to $n$ as well.)"""
    n, d = 3, 8
    W, b = random_couplings(key, d)
    net = models.Hopfield(W, b)
    xs = all_states(d)
    fields = each(net.field, xs)
    first_thresholds = np.where(np.arange(d) < n, np.asarray(b), 0.0)
    printed = lambda xs: np.einsum("si,ij,sj->s", xs, W, xs) * -0.5 + xs @ first_thresholds
    corrected = lambda xs: each(net.energy, xs)

    def gains(energies):
        return np.stack(
            [energies(set_site(xs, i, 1.0)) - energies(set_site(xs, i, -1.0)) for i in range(d)],
            axis=1,
        )

    return Verdict(
        close(
            "gain of each site, thresholds to d = 8", gains(corrected), -2 * fields, tolerance=1e-10
        ),
        printed=[
            close(
                "gain of each site, thresholds to n = 3",
                gains(printed),
                -2 * fields,
                tolerance=1e-10,
            )
        ],
    )


def error_message(make):
    """The message of the ValueError that a constructor raises; empty if it raises none."""
    try:
        make()
    except ValueError as error:
        return str(error)
    return ""


@claim(
    "1.4-constraints",
    title="Couplings are symmetric, and no site acts on itself",
    kind="definition",
    of=("models.Hopfield", "models.update_sites"),
    cites="Hopfield 1982",
)
def constraints(key):
    r"""The couplings obey $w_{ij} = w_{ji}$ and $w_{ii} = 0$. Without symmetry there is no energy
    that decreases: under $W = \begin{pmatrix} 0 & 1 \\ -1 & 0 \end{pmatrix}$ the asynchronous
    updates cycle through four states.
    """
    asymmetric = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    symmetric = models.Hopfield(random_couplings(key, 6)[0])
    unchecked = eqx.tree_at(
        lambda net: net.W, models.Hopfield(jnp.zeros((2, 2))), asymmetric
    )  # bypasses the check in the constructor
    states = [jnp.ones(2)]
    for site in [0, 1] * 4:
        states += [models.update_sites(unchecked, states[-1], jnp.array([site])).x]
    states = np.array(states[1:])
    return Verdict(
        equal(
            "asymmetric couplings are rejected",
            "symmetric" in error_message(lambda: models.Hopfield(asymmetric)),
            True,
        ),
        equal(
            "a non-zero diagonal is rejected",
            "diagonal" in error_message(lambda: models.Hopfield(jnp.eye(2))),
            True,
        ),
        equal("valid couplings are accepted", symmetric.W, symmetric.W.T),
        equal("states after 1, 2, 3, 4 visits", states[:4], [[1, 1], [1, -1], [-1, -1], [-1, 1]]),
        equal("states after 4 more visits", states[4:], states[:4]),
        equal(
            "the updates settle",
            bool(models.asynchronous_recall(unchecked, states[0]).settled),
            False,
        ),
    )


@claim(
    "1.4-update-energy",
    "1.4-field",
    title="The update that lowers the energy is the sign of the field",
    kind="identity",
    of=("models.Hopfield", "models.update_sites"),
    cites="Hopfield 1982",
)
def field(key):
    r"""Setting $x_i$ to whichever sign gives the lower energy ($+1$ if both give the same) is
    $x_i \leftarrow \mathrm{sgn}(H_i)$ with $\mathrm{sgn}(0) = +1$ and the field
    $H_i = \sum_j w_{ij} x_j - b_i$, since $H(x_i = +1) - H(x_i = -1) = -2 H_i$. With $w_{ii} \ne 0$
    the two rules differ.
    """
    d = 8
    xs = all_states(8)
    checks = []
    gaussian = random_couplings(key, d)
    ties = (
        jnp.sign(gaussian[0]),
        jnp.sign(gaussian[1]),
    )  # 7 signs and a threshold: each field is even, and often 0, a tie
    for name, (W, b) in {"random couplings": gaussian, "couplings of ±1, with ties": ties}.items():
        gain = energy_gains(np.asarray(W), np.asarray(b), xs)
        net = models.Hopfield(W, b)
        update = jax.vmap(
            jax.vmap(lambda x, i, net=net: models.update_sites(net, x, i[None]).x[i], (None, 0)),
            (0, None),
        )
        updates = update(jnp.asarray(xs), jnp.arange(d))
        checks += [
            close(
                f"{name}: energy difference of the two signs",
                gain,
                -2 * each(net.field, xs),
                tolerance=1e-10,
                method="brute force",
            ),
            equal(
                f"{name}: 2,048 updates",
                updates,
                np.where(gain <= 0, 1.0, -1.0),
                method="brute force",
            ),
        ]
    W = np.asarray(gaussian[0]) + 1.5 * np.eye(d)
    gain = energy_gains(W, np.zeros(d), xs)
    fields = xs @ W
    control = equal(
        "updates with w_ii = 1.5", np.where(fields >= 0, 1.0, -1.0), np.where(gain <= 0, 1.0, -1.0)
    )
    n_ties = int((energy_gains(np.asarray(ties[0]), np.asarray(ties[1]), xs) == 0).sum())
    return Verdict(
        *checks,
        refuted(control),
        assumptions=[equal("ties among the 2,048 updates", n_ties, 8 * 2 * comb(7, 3))],
    )


def energy_gains(W, b, xs):
    """H(x_i = +1) - H(x_i = -1) at every site of every state, from the two full energies."""
    value = lambda xs: -0.5 * np.einsum("si,ij,sj->s", xs, W, xs) + xs @ b
    return np.stack(
        [value(set_site(xs, i, 1.0)) - value(set_site(xs, i, -1.0)) for i in range(xs.shape[1])],
        axis=1,
    )


@claim(
    "1.4-descent",
    title="Asynchronous updates descend to a minimum",
    kind="theorem",
    of=("models.update_sites", "models.asynchronous_recall"),
    cites="Hopfield 1982",
)
def descent(key):
    r"""No asynchronous update raises the energy; each flip lowers it by $2 |H_i|$; after finitely
    many flips the dynamics stops in a state whose energy no single flip can lower.
    """
    d, sweeps, nets = 30, 20, 200
    keys = jr.split(key, nets)
    Ws, bs = jax.vmap(lambda key: random_couplings(key, d))(keys)
    starts = random_patterns(jr.fold_in(key, 1), nets, d)
    sites = jnp.tile(jnp.arange(d), sweeps)
    trace = jax.vmap(lambda W, b, x: models.update_sites(models.Hopfield(W, b), x, sites))(
        Ws, bs, starts
    )
    recall = jax.vmap(lambda W, b, x: models.asynchronous_recall(models.Hopfield(W, b), x))(
        Ws, bs, starts
    )
    before = np.einsum("si,sij,sj->s", starts, Ws, starts) * -0.5 + np.sum(bs * starts, axis=1)
    energies = np.concatenate([before[:, None], trace.energies], axis=1)
    drops = np.diff(energies, axis=1)
    is_flipped = np.asarray(trace.flipped)
    W, b = random_couplings(jr.fold_in(key, 2), 10)
    corners = all_states(10)
    ends = each(lambda x: models.asynchronous_recall(models.Hopfield(W, b), x).x, corners)
    return Verdict(
        at_most("greatest change of energy at a visit", drops, 0.0, slack=1e-12),
        close("change at a flip", drops, np.where(is_flipped, -2 * np.abs(trace.fields), 0.0)),
        equal(
            "networks of d = 30 that settled", int(recall.settled.sum()), nets, method="brute force"
        ),
        equal("both functions end in the same state", recall.x, trace.x),
        at_most(
            "energy decrease left to any one flip, d = 30",
            -lowest_gain(Ws, bs, recall.x),
            0.0,
            slack=1e-12,
        ),
        at_most(
            "the same from all 1,024 states of d = 10",
            -lowest_gain(W[None], b[None], ends),
            0.0,
            slack=1e-12,
        ),
        figure=Panel(
            "sites visited",
            "energy",
            title="Four networks of 30 sites",
            lines={f"network {k + 1}": (np.arange(151), energies[k, :151]) for k in range(4)},
        ),
    )


def lowest_gain(Ws, bs, xs):
    """The least energy added by flipping one site: H changes by 2 x_i (Σ_j w_ij x_j - b_i)."""
    fields = np.einsum("...ij,...j->...i", np.asarray(Ws), np.asarray(xs)) - np.asarray(bs)
    return (2 * np.asarray(xs) * fields).min(axis=-1)


@claim(
    "1.4-sync-cycle",
    title="Parallel updates can oscillate",
    kind="experiment",
    of=("models.synchronous_recall", "models.asynchronous_recall"),
    cites="Goles & Olivos 1981",
)
def synchronous_cycle(key):
    r"""Updated at once, two sites with $w_{12} = 1$ started at $(1, -1)$ exchange their signs
    forever; updated one at a time, they settle. Symmetric couplings never give a cycle of more than
    two states.
    """
    net = models.Hopfield(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    start = jnp.array([1.0, -1.0])
    parallel = models.synchronous_recall(net, start)
    states = [np.asarray(models.synchronous_recall(net, start, max_steps=k).x) for k in (1, 2)]
    sequential = models.asynchronous_recall(net, start)
    Ws, _ = jax.vmap(lambda key: random_couplings(key, 12))(jr.split(key, 100))
    starts = random_patterns(jr.fold_in(key, 1), 100, 12)
    periods = jax.vmap(lambda W, x: models.synchronous_recall(models.Hopfield(W), x).period)(
        Ws, starts
    )
    return Verdict(
        equal("period of the parallel updates", int(parallel.period), 2),
        equal("states after one step and after two", states, [[-1, 1], [1, -1]]),
        equal(
            "asynchronous updates settle",
            bool(sequential.settled) and abs(float(sequential.x.sum())) == 2,
            True,
        ),
        equal(
            "100 random networks end with period 1 or 2",
            bool(((periods == 1) | (periods == 2)).all()),
            True,
        ),
    )
