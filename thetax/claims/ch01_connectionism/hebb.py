"""§1.4, learning: Hebb's couplings, and memorised patterns."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.linalg import hadamard

from ... import models
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .hopfield import all_states, each, energy_gains, looped_energy, random_patterns


@claim(
    "1.4-hebb",
    title="Hebb's rule",
    kind="algorithm",
    of=("models.hebb", "models.Hebbian"),
    cites="Hebb 1949; Hopfield 1982",
)
def hebb(key):
    r"""Patterns $x_1, \dots, x_n \in \{-1, +1\}^d$ are stored by
    $w_{ij} = \frac1d \sum_t x_{t,i} x_{t,j}$ for $i \ne j$ and $w_{ii} = 0$, that is
    $W = \frac1d \sum_t x_t x_t^\top - \frac nd I$; learnt one after another they give the same $W$.
    """
    n, d = 5, 12
    X = random_patterns(key, n, d)
    x = np.asarray(X)
    expected = np.array(
        [[0 if i == j else sum(x[:, i] * x[:, j]) / d for j in range(d)] for i in range(d)]
    )
    W = np.asarray(models.hebb(X).W)
    net = models.Hopfield(jnp.zeros((d, d)))
    for pattern in X:
        net = net.learn(pattern)
    states = random_patterns(jr.fold_in(key, 1), 50, d)
    energies = [looped_energy(expected, np.zeros(d), x) for x in np.asarray(states)]
    return Verdict(
        close("couplings, against the sum", W, expected),
        equal("symmetric", W, W.T),
        equal("diagonal", np.diagonal(W), np.zeros(d)),
        close("one pattern after another", net.W, expected),
        close(
            "fields without the matrix", each(models.Hebbian(X).field, states), states @ expected
        ),
        close("energies without the matrix", each(models.Hebbian(X).energy, states), energies),
    )


@erratum(
    "1.4-hebb",
    title="The diagonal of Hebb's outer products must be removed",
    of=("models.hebb",),
    cites="Hopfield 1982",
    printed=r"W = \frac1d \sum_{t=1}^n x_t x_t^\top",
    corrected=r"W = \frac1d \sum_{t=1}^n x_t x_t^\top - \frac{n}{d} I",
)
def hebb_erratum(key):
    r"""The sum of outer products has the diagonal $n/d$, which breaks $w_{ii} = 0$; the sign of the
    field is then no longer the sign of lower energy. Subtracting $\frac nd I$ corrects both.
    """
    n, d = 5, 8
    X = np.asarray(random_patterns(key, n, d))
    xs = all_states(d)
    printed = X.T @ X / d
    corrected = np.asarray(models.hebb(X).W)

    def checks(name, W):
        gain = energy_gains(d * W, np.zeros(d), xs)  # integers, so that ties are exact
        rule = np.where(np.rint(xs @ (d * W)) >= 0, 1.0, -1.0)
        return [
            equal(f"{name}: diagonal", np.diagonal(W), np.zeros(d)),
            equal(
                f"{name}: sign of the field lowers the energy",
                rule,
                np.where(np.rint(gain) <= 0, 1.0, -1.0),
            ),
        ]

    return Verdict(*checks("corrected", corrected), printed=checks("printed", printed))


@claim(
    "1.4-hebb-sign",
    title="Sites that agree attract, sites that differ repel",
    kind="identity",
    of=("models.hebb",),
    cites="Hebb 1949",
)
def hebb_sign(key):
    r"""Hebb's coupling of two sites counts how much more often the patterns agree there than
    differ, $w_{ij} = \frac1d (\#\{x_{t,i} = x_{t,j}\} - \#\{x_{t,i} \ne x_{t,j}\})$: positive for
    sites mostly equal, negative for sites mostly opposite, and $\frac nd$ times the correlation of
    their signs.
    """
    n, d = 9, 16
    X = np.array(random_patterns(key, n, d))
    X[:, 1], X[:, 2] = X[:, 0], -X[:, 0]
    W = np.asarray(models.hebb(X).W)
    off = ~np.eye(d, dtype=bool)
    agree = np.sum([x[:, None] == x[None] for x in X], axis=0)
    return Verdict(
        equal("couplings, d a power of 2", W[off], ((2 * agree - n) / d)[off]),
        equal("signs of the couplings", np.sign(W[off]), np.sign(agree - n / 2)[off]),
        close(
            "n/d times the correlation",
            W[off],
            (n / d * np.mean(X[:, :, None] * X[:, None], axis=0))[off],
            tolerance=1e-15,
        ),
        equal("sites always equal, sites always opposite", W[0, 1:3], [n / d, -n / d]),
    )


@claim(
    "1.4-metastable",
    title="A memorised pattern is a fixed point",
    kind="definition",
    of=("models.hebb", "models.synchronous_recall"),
    cites="Hopfield 1982",
)
def metastable(key):
    r"""A pattern is memorised if it is a fixed point, $x_{t,i} = \mathrm{sgn}(\sum_j w_{ij}
    x_{t,j})$ for all $i$. A single stored pattern is memorised, and so is its negative; so are $n <
    d$ orthogonal patterns, whose field is $\frac{d-n}{d} x_t$.
    """
    steps = {}
    for d in (2, 3, 10):
        x = random_patterns(jr.fold_in(key, d), 1, d)
        net = models.hebb(x)
        steps[d] = [int(models.synchronous_recall(net, s * x[0]).steps) for s in (1, -1)]
    d = 16
    H = hadamard(16).astype(float)
    are_fixed = {}
    errors = []
    for n in (1, 8, 15, 16):
        fields = each(models.hebb(H[:n]).field, H[:n])
        errors.append(np.abs(fields - (d - n) / d * H[:n]).max())
        are_fixed[n] = bool((np.where(fields >= 0, 1.0, -1.0) == H[:n]).all())
    fixed_at_16 = are_fixed.pop(d)
    return Verdict(
        equal(
            "one pattern and its negative: steps until the fixed point is detected",
            list(steps.values()),
            [[1, 1]] * 3,
        ),
        equal(
            "1, 8 and 15 orthogonal patterns of 16 sites are fixed",
            list(are_fixed.values()),
            [True] * 3,
        ),
        close("their fields", errors, np.zeros(4)),
        refuted(equal("n = d = 16 of them are fixed, though the fields vanish", fixed_at_16, True)),
    )
