"""Lecture 1: linear units, linear and affine maps, and their matrices."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers, models
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


@claim(
    "L1-linear-unit",
    "L1-affine-unit",
    title="Linear and affine units",
    kind="model",
    of=("layers.Linear", "models.Perceptron"),
)
def units(rng):
    r"""A linear unit is $g(x; \theta) = x \cdot \theta = \sum_i x_i \theta_i$. A bias is a weight
    on a constant input, $x \cdot \theta + b = (x, 1) \cdot (\theta, b)$.
    """
    theta = rng.normal(size=4)
    b = rng.normal()
    xs = rng.normal(size=(20, 4))
    padded = jnp.asarray(np.c_[xs, np.ones(20)])
    long = jnp.asarray(np.r_[theta, b])
    loops = np.array([sum(x[i] * theta[i] for i in range(4)) for x in xs])
    short = jax.vmap(Linear(jnp.asarray(theta)[None], jnp.array([b])))(jnp.asarray(xs))[:, 0]
    scores = jax.vmap(models.Perceptron(jnp.asarray(theta), jnp.asarray(b)).score)(jnp.asarray(xs))
    return Verdict(
        close(
            "the unit, against a loop",
            jax.vmap(Linear(jnp.asarray(theta)[None]))(jnp.asarray(xs))[:, 0],
            loops,
            tolerance=1e-14,
        ),
        close("with a bias, against the loop", short, loops + b, tolerance=1e-14),
        close(
            "with a constant input instead",
            jax.vmap(Linear(long[None]))(padded)[:, 0],
            loops + b,
            tolerance=1e-14,
        ),
        close("a perceptron's score, with a bias", scores, loops + b, tolerance=1e-14),
        close(
            "a perceptron's score, with a constant input",
            jax.vmap(models.Perceptron(long).score)(padded),
            loops + b,
            tolerance=1e-14,
        ),
        refuted(close("without the constant input", loops, loops + b, tolerance=1e-6)),
    )


@claim(
    "L1-direction-rate",
    title="The direction of fastest change of a linear unit",
    kind="identity",
    of=("layers.Linear",),
)
def direction_rate(rng):
    r"""A linear unit $x \cdot \theta$ changes fastest in the direction $\theta / \|\theta\|$, at
    the rate $\|\theta\|$, at every $x$.
    """
    theta = rng.normal(size=2)
    length = np.linalg.norm(theta)
    unit = Linear(jnp.asarray(theta)[None])
    f = lambda x: unit(x)[0]
    angles = np.sort(rng.uniform(-np.pi, np.pi, 10_000))
    around = np.c_[np.cos(angles), np.sin(angles)]
    slope = jax.jit(jax.vmap(lambda x, v: jax.jvp(f, (x,), (v,))[1]))
    rates = np.asarray(slope(jnp.asarray(rng.normal(size=(10_000, 2))), jnp.asarray(around)))
    everywhere = jax.vmap(jax.grad(f))(jnp.asarray(10 * rng.normal(size=(20, 2))))
    top = np.arctan2(theta[1], theta[0])
    return Verdict(
        at_most("rate along 10,000 directions", rates, length, slack=1e-12),
        close(
            "the fastest direction, against θ / ‖θ‖",
            around[rates.argmax()],
            theta / length,
            tolerance=1e-2,
        ),
        close("its rate, against ‖θ‖", rates.max(), length, tolerance=1e-3),
        close(
            "the rate along θ / ‖θ‖",
            slope(jnp.zeros((1, 2)), jnp.asarray(theta / length)[None])[0],
            length,
        ),
        close("the gradient at 20 points", everywhere, np.tile(theta, (20, 1)), tolerance=1e-14),
        figure=Panel(
            "direction (angle)",
            "rate of change",
            lines={"measured": (angles[::20], rates[::20])},
            bounds={"‖θ‖": ([-np.pi, np.pi], [length, length])},
            vertical_lines={"direction of θ": top},
        ),
    )


@claim(
    "L1-linear-layer",
    "L1-constant-rate",
    title="A linear layer and its Jacobian",
    kind="layer",
    of=("layers.Linear",),
)
def layer(rng):
    r"""A linear layer stacks units, $L(x; \Theta) = \Theta x$ with
    $\Theta \in \mathbb{R}^{m \times n}$: its output $j$ is $x \cdot \theta_j$, where
    $\theta_j^\top$ is row $j$. Its Jacobian is $\Theta$ at every $x$; a sigmoid's is not constant.
    """
    Theta = rng.normal(size=(3, 5))
    xs = rng.normal(size=(20, 5))
    linear = Linear(jnp.asarray(Theta))
    rows = np.array([[sum(x[i] * row[i] for i in range(5)) for row in Theta] for x in xs])
    sigmoid_layer = Chain(linear, layers.sigmoid)
    slopes = np.stack([jacobian(linear, x) for x in xs])
    curved = np.asarray(jax.vmap(jax.jacfwd(sigmoid_layer))(jnp.asarray(xs)))
    by_weights = jacobian(lambda W: Linear(W)(jnp.asarray(xs[0])), Theta)
    expected = np.einsum("jk,i->jki", np.eye(3), xs[0])
    return Verdict(
        close("row by row", jax.vmap(linear)(jnp.asarray(xs)), rows, tolerance=1e-13),
        equal("shape of Θ for 5 inputs and 3 outputs", linear.W.shape, (3, 5)),
        close_derivative(
            "Jacobian at 20 points", slopes, np.tile(Theta, (20, 1, 1)), tolerance=1e-9
        ),
        close_derivative(
            "derivative by Θ: the input, in the row of the output",
            by_weights,
            expected,
            tolerance=1e-9,
        ),
        refuted(
            close(
                "a sigmoid layer: Jacobian at 20 points, against the first",
                curved,
                np.tile(curved[0], (20, 1, 1)),
                tolerance=1e-3,
            )
        ),
    )


def superposition(f, n, rng, trials=20):
    r"""The largest of $|f(\alpha x + \beta y) - \alpha f(x) - \beta f(y)|$ over random numbers."""
    (a, b), (xs, ys) = rng.normal(size=(2, trials)), rng.normal(size=(2, trials, n))
    of = lambda x: np.asarray(f(jnp.asarray(x)))
    return max(
        np.abs(of(s * x + t * y) - s * of(x) - t * of(y)).max() for s, t, x, y in zip(a, b, xs, ys)
    )


def homogeneity(f, n, rng, trials=20):
    r"""The largest of $|f(\alpha x) - \alpha f(x)|$ and of $|f(x + y) - f(x) - f(y)|$."""
    a, (xs, ys) = rng.normal(size=trials), rng.normal(size=(2, trials, n))
    of = lambda x: np.asarray(f(jnp.asarray(x)))
    scaled = max(np.abs(of(s * x) - s * of(x)).max() for s, x in zip(a, xs))
    return max(scaled, max(np.abs(of(x + y) - of(x) - of(y)).max() for x, y in zip(xs, ys)))


@claim(
    "L1-superposition",
    "L1-affine",
    title="Linear and affine functions",
    kind="definition",
    of=("layers.Linear", "layers.relu"),
)
def linearity(rng):
    r"""$f$ is linear iff $f(\alpha x) = \alpha f(x)$ and $f(x + y) = f(x) + f(y)$; in one line,
    $f(\alpha x + \beta y) = \alpha f(x) + \beta f(y)$. An affine map is a linear one plus the
    constant $f(0)$.
    """
    W = jnp.asarray(rng.normal(size=(4, 6)))
    b = jnp.asarray(rng.normal(size=4))
    linear = {
        "a linear layer": Linear(W),
        "the Fourier transform": np.fft.fft,
        "a difference stencil": lambda x: (x[2:] - x[:-2]) / 2,
    }
    other = {
        "an affine layer": Linear(W, b),
        "ReLU": layers.relu,
        "the absolute value": jnp.abs,
        "the norm": jnp.linalg.norm,
    }
    affine = Linear(W, b)
    exact = {"tolerance": 1e-12, "method": "brute force"}
    checks = []
    for name, f in linear.items():
        checks += [
            close(
                f"{name}: largest violation of superposition",
                superposition(f, 6, rng),
                0.0,
                **exact,
            )
        ]
        checks += [
            close(
                f"{name}: largest violation of the two rules", homogeneity(f, 6, rng), 0.0, **exact
            )
        ]
    for name, f in other.items():
        checks += [
            refuted(
                close(
                    f"{name}: largest violation of superposition",
                    superposition(f, 6, rng),
                    0.0,
                    **exact,
                )
            )
        ]
        checks += [
            refuted(
                close(
                    f"{name}: largest violation of the two rules",
                    homogeneity(f, 6, rng),
                    0.0,
                    **exact,
                )
            )
        ]
    rest = superposition(lambda x: affine(x) - affine(jnp.zeros(6)), 6, rng)
    return Verdict(
        *checks,
        close("an affine layer minus f(0): largest violation of superposition", rest, 0.0, **exact),
        close("f(0) of an affine layer", affine(jnp.zeros(6)), b, tolerance=0.0),
    )


def _black_boxes(key):
    """Linear maps that are given only by their values."""
    net = models.deep_linear(5, 4, 3, key=key)
    return {
        "running sums": lambda x: np.cumsum(x),
        "the real part of the Fourier transform": lambda x: np.fft.fft(x).real,
        "a permutation": lambda x: np.asarray(x)[[3, 0, 4, 1, 2]],
        "a deep linear network": lambda x: np.asarray(net(jnp.asarray(x))),
    }, net


@claim(
    "L1-matrix-representation",
    title="A linear map is a matrix",
    kind="theorem",
    of=("layers.Linear", "models.merge_linear_layers"),
)
def matrix(key, rng):
    r"""$f : \mathbb{R}^n \to \mathbb{R}^m$ is linear iff $f(x) = Ax$ for a matrix
    $A \in \mathbb{R}^{m \times n}$, and there is only one: its column $j$ is $f(e_j)$.
    """
    checks = []
    boxes, net = _black_boxes(key)
    for name, f in boxes.items():
        A = np.stack([f(e) for e in np.eye(5)], axis=1)
        xs = rng.normal(size=(30, 5))
        values = np.stack([f(x) for x in xs])
        result = np.linalg.lstsq(xs, values, rcond=None)[0].T  # from other points: the same matrix
        checks += [
            close(
                f"{name}: Ax, as a layer", jax.vmap(Linear(jnp.asarray(A)))(jnp.asarray(xs)), values
            ),
            close(f"{name}: A from 30 other points", result, A),
        ]
    square = lambda x: x * np.abs(x)
    columns = np.stack([square(e) for e in np.eye(5)], axis=1)
    return Verdict(
        *checks,
        close(
            "the deep linear network's matrix, against its columns",
            models.merge_linear_layers(net).W,
            A,
            tolerance=1e-13,
        ),
        equal(
            "its shape, from 5 inputs to 3 outputs", models.merge_linear_layers(net).W.shape, (3, 5)
        ),
        refuted(
            close(
                "x|x|, which is not linear, by its columns",
                xs @ columns.T,
                square(xs),
                tolerance=1e-3,
            )
        ),
    )


@erratum(
    "L1-matrix-representation",
    title="The shape of a linear map's matrix",
    printed=r"f : \mathbb{R}^n \to \mathbb{R}^m,\quad f(x) = Ax,\quad A \in \mathbb{R}^{n \times "
    r"m}",
    corrected=r"f : \mathbb{R}^n \to \mathbb{R}^m,\quad f(x) = Ax,\quad A \in \mathbb{R}^{m "
    r"\times n}",
    of=("layers.Linear",),
    slip=True,
)
def matrix_printed(rng):
    r"""$A$ takes $n$ numbers to $m$: it has $m$ rows and $n$ columns. The printed shape is the
    transpose's.
    """
    n, m = 5, 3
    A = rng.normal(size=(m, n))

    def maps(matrix):
        try:
            return Linear(jnp.asarray(matrix))(jnp.ones(n)).shape == (m,)
        except (TypeError, ValueError):  # by the checker of shapes, or by the layer
            return False

    takes = lambda shape, matrix: equal(
        f"a matrix {shape} takes 5 numbers to 3", maps(matrix), True
    )
    return Verdict(takes("m × n", A), printed=[takes("n × m", A.T)])


@claim(
    "L1-compose-linear",
    "L1-compose-matrix",
    title="Linear maps compose to linear maps",
    kind="theorem",
    of=("layers.Chain", "models.merge_linear_layers"),
)
def composition(rng):
    r"""If $f$ and $g$ are linear so is $g \circ f$. With $f(x) = Ax$ and $g(z) = Bz$ its matrix is
    $BA$, in this order.
    """
    A, B, S, T = (jnp.asarray(rng.normal(size=shape)) for shape in ((4, 3), (2, 4), (3, 3), (3, 3)))
    both = Chain(Linear(A), Linear(B))
    xs = rng.normal(size=(20, 3))
    product = np.array(
        [[sum(B[i, k] * A[k, j] for k in range(4)) for j in range(3)] for i in range(2)]
    )
    square = models.merge_linear_layers(Chain(Linear(S), Linear(T))).W
    shapes = lambda left, right: (left.shape[1], right.shape[0])
    return Verdict(
        close(
            "g ∘ f: largest violation of superposition",
            superposition(both, 3, rng),
            0.0,
            method="brute force",
        ),
        close("collapsed, against the product BA", models.merge_linear_layers(both).W, product),
        close("one after the other", jax.vmap(both)(jnp.asarray(xs)), xs @ product.T),
        close("square maps, collapsed", square, np.asarray(T) @ np.asarray(S)),
        refuted(
            close(
                "square maps, in the other order",
                square,
                np.asarray(S) @ np.asarray(T),
                tolerance=1e-3,
            )
        ),
        equal("BA: columns on the left, rows on the right", shapes(B, A)[0], shapes(B, A)[1]),
        refuted(
            equal("AB: columns on the left, rows on the right", shapes(A, B)[0], shapes(A, B)[1])
        ),
        refuted(
            close(
                "with a ReLU between: largest violation of superposition",
                superposition(Chain(Linear(A), layers.relu, Linear(B)), 3, rng),
                0.0,
            )
        ),
    )
