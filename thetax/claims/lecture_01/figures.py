"""Lecture 1: its figures, drawn from values that the library computes."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from ... import layers, models
from ...plot import Arrow, Box, Diagram, FigureGrid, Panel
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_hand import EXAMPLE, NAMES, backward, flatten, forward, library_backward
from .coordinates import by_label, polar, ring_and_disc

Z = np.linspace(-4, 4, 321)


def loop_diagram():
    """Layers with weights, prediction, loss, optimiser, and back to the weights."""
    places = {
        "input x": (0, 4),
        "layer 1": (0, 3),
        "layer 2": (0, 2),
        "output ŷ": (0, 1),
        "target y": (1, 1),
        "loss ℓ": (0, 0),
        "optimiser": (-1, 0),
        "weights θ": (-1, 2.5),
    }
    boxes = {name: Box(1.4 * x, y, 1.15, 0.6, name) for name, (x, y) in places.items()}
    ways = [
        *pairwise(["input x", "layer 1", "layer 2", "output ŷ", "loss ℓ", "optimiser", "weights θ"])
    ]
    ways += [("target y", "loss ℓ"), ("weights θ", "layer 1"), ("weights θ", "layer 2")]
    return Diagram(boxes, [Arrow(*way) for way in ways], title="The training loop")


def autoencoder_diagram(net):
    """An autoencoder as boxes whose heights are the widths of the layers."""
    (m, d), (out, _) = (layer.W.shape for layer in net.layers)
    heights = {"x": d, "z = Cx": m, "y = Dz": out}
    boxes = {
        name: Box(5 * i, 0, 3, height, name) for i, (name, height) in enumerate(heights.items())
    }
    names = list(boxes)
    return Diagram(
        boxes, [Arrow(names[0], names[1], "C"), Arrow(names[1], names[2], "D")], title="Autoencoder"
    )


def matrix_diagram(title, matrices):
    """Matrices side by side, to scale; the first is the product of the others."""
    boxes = {}
    at = 0.0
    for name, matrix in matrices.items():
        rows, columns = matrix.shape
        boxes[name] = Box(at + columns / 2, 0, columns, rows, name)
        at += columns + 3
    sizes = {
        f"size of {name}": Box(
            box.x, -5.5, box.width, 1, f"{box.height} × {box.width}", frame=False
        )
        for name, box in boxes.items()
    }
    first = next(iter(boxes.values()))
    return Diagram(
        boxes | sizes | {"=": Box(first.x + first.width / 2 + 1.5, 0, 1, 1, "=", frame=False)},
        title=title,
    )


def units(*rows):
    """The named units of a network, layer by layer."""
    places = {
        (name, at): 3 * ((len(row) - 1) / 2 - i)
        for at, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    tall = 0.35 * max(len(row) for row in rows)
    return {name: Box(5 * at, height, 1.0, tall, name) for (name, at), height in places.items()}


def network_diagram():
    """Three inputs, four hidden units, one output."""
    rows = ("x₁", "x₂", "x₃"), ("σ₁", "σ₂", "σ₃", "σ₄"), ("f",)
    arrows = [Arrow(a, b) for near, far in pairwise(rows) for a in near for b in far]
    return Diagram(units(*rows), arrows, title="One hidden layer")


def backward_diagram(gradient):
    """The small network, with the derivative of the loss at the arrow of each weight."""
    ends = (("x₁", "h₁"), ("x₂", "h₁"), ("x₁", "h₂"), ("x₂", "h₂"), ("h₁", "ŷ"), ("h₂", "ŷ"))
    along = (0.5, 0.3, 0.3, 0.5, 0.5, 0.5)
    arrows = [
        Arrow(*end, f"{value:.4f}", share) for end, value, share in zip(ends, gradient, along)
    ]
    return Diagram(units(("x₁", "x₂"), ("h₁", "h₂"), ("ŷ",)), arrows, title="Backward: ∂L/∂w")


def activation_panel():
    """The four activations of the lecture on a grid, computed by the library."""
    shapes = {
        "threshold": layers.heaviside,
        "sign": layers.spin,
        "logistic": layers.sigmoid,
        "tanh": layers.tanh,
    }
    lines = {name: (Z, np.asarray(f(jnp.asarray(Z)))) for name, f in shapes.items()}
    return Panel("z", "φ(z)", lines=lines, title="Activations")


def level_sets(theta):
    """Where a logistic unit has the values ¼, ½ and ¾: lines across θ."""
    side = np.linspace(-3, 3, 2)
    lines = {}
    for value in (0.25, 0.5, 0.75):
        c = np.log(value / (1 - value))
        lines[f"σ = {value:g}"] = (c - side * theta[1]) / theta[0], side
    return Panel(
        "x₁",
        "x₂",
        lines=lines,
        bounds={"θ": ([0, theta[0]], [0, theta[1]])},
        equal_aspect=True,
        title="Level sets",
    )


@claim(
    "L1-figures",
    title="The figures of the lecture",
    kind="figure",
    of=("models.low_rank", "models.deep_linear", "layers.sigmoid", "train.backpropagate"),
)
def figures(key, rng):
    r"""A change of coordinates, the training loop, the autoencoder, the full and the reduced
    decomposition $X = U \Sigma V^\top$, level sets of a ridge function, the activations, a network,
    and its backward pass: every number drawn is one the library computed.
    """
    rng, (d, n, r), theta = rng, (6, 8, 3), np.array([2.0, 1.0])
    xs, ys = ring_and_disc(rng)
    X = rng.normal(size=(d, n))
    net = models.deep_linear(d, 2, d, key=key)
    U, s, Vt = np.linalg.svd(X)
    part = models.low_rank(X, rank=r)
    full_svd = matrix_diagram(
        "Decomposition", {"X": X, "U": U, "Σ": np.eye(d, n) * s[:, None], "Vᵀ": Vt}
    )
    reduced_svd = matrix_diagram(
        "Reduced", {"X₃": part.matrix, "U₃": part.U, "Σ₃": np.diag(part.s), "V₃ᵀ": part.Vt}
    )
    gradient = flatten(library_backward(**EXAMPLE).gradient)
    back = backward_diagram(gradient)
    activations = activation_panel()
    sets = level_sets(theta)
    sizes = lambda diagram: [(box.height, box.width) for box in diagram.boxes.values() if box.frame]
    labels = np.array([float(arrow.text) for arrow in back.arrows])
    paper, _ = backward(**EXAMPLE)
    polar_points = polar(xs)
    formulas = {
        "threshold": np.where(Z >= 0, 1.0, 0.0),
        "sign": np.where(Z >= 0, 1.0, -1.0),
        "logistic": 1 / (1 + np.exp(-Z)),
        "tanh": (np.exp(Z) - np.exp(-Z)) / (np.exp(Z) + np.exp(-Z)),
    }
    on = [expit(np.stack(line, axis=1) @ theta) for line in sets.lines.values()]
    return Verdict(
        *[
            close(f"{name}, at the points drawn", activations.lines[name][1], y, tolerance=1e-15)
            for name, y in formulas.items()
        ],
        close(
            "level sets: σ(x·θ) at the end points",
            on,
            np.repeat([[0.25], [0.5], [0.75]], 2, axis=1),
        ),
        equal(
            "decomposition: heights and widths", sizes(full_svd), [(d, n), (d, d), (d, n), (n, n)]
        ),
        equal(
            "reduced: heights and widths, r = 3",
            sizes(reduced_svd),
            [(d, n), (d, r), (r, r), (r, n)],
        ),
        refuted(
            equal("reduced, against the sizes of the full one", sizes(reduced_svd), sizes(full_svd))
        ),
        equal(
            "autoencoder: heights, d = 6 and m = 2",
            [h for h, _ in sizes(autoencoder_diagram(net))],
            [d, 2, d],
        ),
        equal(
            "the sketch: units and arrows",
            (len(network_diagram().boxes), len(network_diagram().arrows)),
            (3 + 4 + 1, 3 * 4 + 4),
        ),
        close(
            f"backward: {', '.join(NAMES)} as written, against the formulas",
            labels,
            paper,
            tolerance=5.1e-5,
        ),
        close("the output of the forward pass", forward(EXAMPLE["w"], EXAMPLE["x"])[3], 0.8),
        close(
            "coordinates: converted back from polar",
            polar_points[:, :1] * np.c_[np.cos(polar_points[:, 1]), np.sin(polar_points[:, 1])],
            xs,
        ),
        figure=FigureGrid(
            Panel("x₁", "x₂", points=by_label(xs, ys), equal_aspect=True, title="Coordinates"),
            Panel(
                "length r", "angle φ", points=by_label(polar_points, ys), title="Other coordinates"
            ),
            loop_diagram(),
            autoencoder_diagram(net),
            full_svd,
            reduced_svd,
            sets,
            activations,
            network_diagram(),
            back,
        ),
    )
