"""Lecture 10, exercise 1: exclusive or with a linear classifier and with two hidden units."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from .... import layers, models
from ....core import predict
from ....plot import Chart, Panel
from ...engine.check import at_least, close, equal, refuted
from ...engine.claim import Verdict, claim

CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = np.array([0, 1, 1, 0])


def line_agrees(labels: np.ndarray) -> int:
    """How many corners a line can classify correctly: the maximum over all lines, enumerated by the
    directions between the corners and the gaps between the projections.
    """
    best = 0
    for angle in np.linspace(0, 2 * np.pi, 720, endpoint=False) + 1e-3:
        height = CORNERS @ [np.cos(angle), np.sin(angle)]
        cuts = np.concatenate([[height.min() - 1], np.sort(height) + 1e-6])
        best = max(best, *((((height > cut) == labels).sum()) for cut in cuts))
    return int(best)


@claim(
    "L10-ex1a-xor-inseparable",
    title="No line separates exclusive or",
    kind="exercise",
    of=("models.find_separator", "models.least_squares"),
    cites="Minsky & Papert 1969",
)
def inseparable(key):
    r"""$w^\top x + b > 0$ at $(0, 1)$ and $(1, 0)$, and $\le 0$ at $(0, 0)$ and $(1, 1)$, is
    impossible: both pairs have the same sum, so the sum of the first two inequalities contradicts
    that of the others. A line classifies three of the four correctly, and least squares predicts
    $\frac12$ everywhere.
    """
    sign = 2 * XOR - 1
    result = models.find_separator(CORNERS, sign)
    rows = -sign[:, None] * np.column_stack([CORNERS, np.ones(4)])  # z v ≤ −1 where y (w x + b) ≥ 1
    programme = linprog(np.zeros(3), A_ub=rows, b_ub=-np.ones(4), bounds=(None, None))
    every = [np.array(labels) for labels in product([0, 1], repeat=4)]
    separable = np.array(
        [models.find_separator(CORNERS, 2 * labels - 1).separable for labels in every]
    )
    agreement = np.array([(labels == XOR).sum() for labels in every])
    brute = np.array([line_agrees(labels) == 4 for labels in every])
    plane = models.least_squares(jnp.asarray(CORNERS), jnp.asarray(XOR, float))
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 3, 6)] * 2), axis=-1).reshape(-1, 2)
    return Verdict(
        equal("scipy's status of the linear programme (2: infeasible)", programme.status, 2),
        equal("the library: separable", result.separable, False),
        close(
            "its certificate, equal weights of the corners", result.certificate, np.full(4, 0.25)
        ),
        equal(
            "(0, 1) + (1, 0), against (0, 0) + (1, 1)",
            CORNERS[1] + CORNERS[2],
            CORNERS[0] + CORNERS[3],
        ),
        equal(
            "which of the 16 labellings are linearly separable, against a search over lines",
            separable,
            brute,
        ),
        equal(
            "corners of XOR that the best line classifies correctly", agreement[separable].max(), 3
        ),
        refuted(equal("corners, over all labellings", agreement.max(), 3)),
        close("least squares at 36 points", predict(plane, jnp.asarray(grid))[:, 0], 0.5),
    )


def network(W, b, beta, offset) -> layers.Chain:
    """One hidden layer of ReLU units."""
    W, b, beta, offset = (jnp.asarray(a, float) for a in (W, b, beta, offset))
    return layers.Chain(layers.Linear(W, b), layers.relu, layers.Linear(beta, offset))


@claim(
    "L10-ex1b-xor-mlp",
    "L10-ex1c-xor-nobias",
    title="Two ReLU units compute exclusive or",
    kind="exercise",
    of=("layers.Chain", "layers.relu", "layers.Linear"),
)
def two_units(rng):
    r"""With $W_0 = \begin{pmatrix} 1 & 1 \\ 1 & 1 \end{pmatrix}$, $b_0 = (0, -1)$,
    $\beta = (1, -2)$ and $b_1 = -\frac12$ the outputs are $-\frac12, \frac12, \frac12, -\frac12$.
    Without $b_1$ they are $0, 1, 1, 0$, and the rule $f > 0$ is correct, as it is for
    $(x_1 - x_2)_+ + (x_2 - x_1)_+ = |x_1 - x_2|$. One unit is not enough: its output is monotone in
    one linear form, hence a line.
    """
    xs = jnp.asarray(CORNERS)
    ones = np.ones((2, 2))
    outputs = lambda net, at=xs: np.asarray(predict(net, at))[:, 0]
    with_bias = network(ones, [0, -1], [[1, -2]], [-0.5])
    without = network(ones, [0, -1], [[1, -2]], [0])
    absolute = network([[1, -1], [-1, 1]], [0, 0], [[1, 1]], [0])
    places = rng.normal(size=(1000, 2)) * 3
    count = {width: _kinds(rng, width) for width in (1, 2)}
    lines = {labels for labels in product([0, 1], repeat=4) if line_agrees(np.array(labels)) == 4}
    hidden = np.asarray(jax.vmap(layers.Chain(*with_bias.layers[:2]))(xs))
    return Verdict(
        equal("with b₁ = −½", outputs(with_bias), np.array([-0.5, 0.5, 0.5, -0.5])),
        equal("with b₁ = 0", outputs(without), np.array([0.0, 1.0, 1.0, 0.0])),
        equal("with b₁ = 0: the rule f > 0", outputs(without) > 0, XOR == 1),
        equal(
            "(x₁ − x₂)₊ + (x₂ − x₁)₊ at the corners",
            outputs(absolute),
            np.array([0.0, 1.0, 1.0, 0.0]),
        ),
        equal(
            "against |x₁ − x₂| at 1,000 points",
            outputs(absolute, jnp.asarray(places)),
            np.abs(places[:, 0] - places[:, 1]),
        ),
        equal(
            "labellings by 100,000 networks of one unit that are not linearly separable",
            len(set(count[1]) - lines),
            0,
        ),
        equal("XOR among them", count[1].get(tuple(XOR), 0), 0),
        at_least("XOR among 100,000 networks of two units", count[2].get(tuple(XOR), 0), 1),
        figure=Chart(
            Panel("x₁", "x₂", points=_classes(CORNERS), equal_aspect=True, title="the inputs"),
            Panel(
                "h₁",
                "h₂",
                points=_classes(hidden),
                title="the hidden units",
                bounds={"h₁ − 2h₂ = ½": (np.array([0.0, 2.2]), np.array([-0.25, 0.85]))},
            ),
        ),
    )


def _classes(points: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"{y}": (points[y == XOR, 0], points[y == XOR, 1]) for y in (0, 1)}


def _kinds(rng: np.random.Generator, width: int) -> dict[tuple[int, ...], int]:
    """How often random ReLU networks of this width produce each labelling of the corners, under the
    rule f > 0.
    """
    draws = [
        rng.normal(size=shape)
        for shape in ((100_000, width, 2), (100_000, width), (100_000, 1, width), (100_000, 1))
    ]
    at = lambda *parts: predict(network(*parts), jnp.asarray(CORNERS))[:, 0]
    positive = np.asarray(jax.vmap(at)(*draws)) > 0
    kinds, counts = np.unique(positive.astype(int), axis=0, return_counts=True)
    return {tuple(kind.tolist()): int(count) for kind, count in zip(kinds, counts)}
