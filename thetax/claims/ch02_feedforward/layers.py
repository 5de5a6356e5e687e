"""§2.2 and §2.3: affine layers, activations, composition, and the symmetries of a network."""

from functools import partial
from itertools import pairwise, permutations, product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import special

from ... import explain, layers, models, train, tree
from ...core import predict
from ...layers import Chain, Linear
from ...models import MLP
from ...plot import Chart, Panel
from ..engine import differences
from ..engine.check import at_most, between, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum

ORDERS = list(permutations(range(4)))


def _layer(phi, W, b, x):
    return Chain(Linear(W, b), phi)(x)


def _unit_by_unit(W, b, phi, x):
    """A layer, computed by a loop over units and inputs."""
    return np.array([phi(sum(W[i, j] * x[j] for j in range(len(x))) + b[i]) for i in range(len(b))])


@claim(
    "2.2-layer", title="A fully connected layer", kind="layer", of=("layers.Linear", "layers.Chain")
)
def fully_connected_layer(rng):
    r"""A layer of width $m$ is $F[W, b](x) = \varphi(Wx + b)$ with $W \in \mathbb{R}^{m \times n}$,
    $b \in \mathbb{R}^m$ and $\varphi$ applied elementwise."""
    shapes = {"W": (4, 3), "b": (4,), "x": (3,)}
    arrays = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
    u = jnp.asarray(rng.normal(size=4))
    W, b, x = (np.asarray(a) for a in arrays.values())
    checks = []
    for name, phi, scalar in (
        ("sigmoid", layers.sigmoid, special.expit),
        ("tanh", layers.tanh, np.tanh),
    ):
        layer = partial(_layer, phi)
        functional = lambda arrays, layer=layer: jnp.vdot(u, layer(**arrays))
        checks += [close(f"{name}, unit by unit", layer(**arrays), _unit_by_unit(W, b, scalar, x))]
        for part, gradient in jax.grad(functional)(arrays).items():
            numeric = differences.jacobian(
                lambda a, part=part, functional=functional: functional({**arrays, part: a}),
                arrays[part],
            )
            checks += [close_derivative(f"{name}, by {part}", gradient, numeric)]
    return Verdict(*checks)


@erratum(
    "2.2-layer",
    title="The length of a bias",
    printed=r"F[W, b](x) = \varphi(Wx + b), \quad W \in \mathbb{R}^{m \times n},\; b \in "
    r"\mathbb{R}^n",
    corrected=r"F[W, b](x) = \varphi(Wx + b), \quad W \in \mathbb{R}^{m \times n},\; b \in "
    r"\mathbb{R}^m",
    of=("layers.Linear",),
    slip=True,
)
def bias_length(key):
    r"""$Wx \in \mathbb{R}^m$ has as many entries as there are units; so must $b$, one number for
    each unit.
    """
    n, m = 3, 4

    def accepts(length):
        try:
            return Linear(jnp.ones((m, n)), jnp.ones(length))(jnp.ones(n)).shape == (m,)
        except (TypeError, ValueError):  # raised by the shape checker or by the layer
            return False

    defined = lambda length: equal(
        f"Wx + b is defined for b of length {length}, n={n}, m={m}", accepts(length), True
    )
    return Verdict(defined(m), printed=[defined(n)])


@claim(
    "2.2-composition",
    title="A network is a composition",
    kind="definition",
    of=("layers.Chain", "explain.hook_outputs"),
)
def composition(rng):
    r"""A network is $G = F_L \circ \dots \circ F_1$ with activations $x^\ell = F_\ell(x^{\ell-1})$,
    $x^0 = x$. The output of a layer equals that of the prefix of the network that ends
    with it, and composition is associative.
    """
    sizes = (3, 4, 4, 2)
    x = rng.normal(size=3)
    weights = [(rng.normal(size=(m, n)), rng.normal(size=m)) for n, m in pairwise(sizes)]
    parts = [Chain(Linear(jnp.asarray(W), jnp.asarray(b)), layers.tanh) for W, b in weights]
    net = Chain(*parts)
    stored = []

    def store(path, h):
        stored.append(h)
        return h

    output = explain.hook_outputs(net, store)(jnp.asarray(x))
    prefixes = [Chain(*parts[: i + 1])(jnp.asarray(x)) for i in range(3)]
    loop = x
    by_hand = []
    for W, b in weights:
        loop = _unit_by_unit(W, b, np.tanh, loop)
        by_hand.append(loop)
    a, b, c = parts
    left = Chain(Chain(a, b), c)(jnp.asarray(x))
    right = Chain(a, Chain(b, c))(jnp.asarray(x))
    outputs = np.concatenate(stored[1::2])  # two outputs per layer: before and after its activation
    return Verdict(
        equal(
            "activations recorded by a hook, against each prefix of the network",
            outputs,
            np.concatenate(prefixes),
        ),
        close("against loops over units", outputs, np.concatenate(by_hand)),
        equal("(F₃F₂)F₁ and F₃(F₂F₁)", np.stack([left, right]), np.stack([output, output])),
        refuted(
            close(
                "with one layer repeated", Chain(a, b, b, c)(jnp.asarray(x)), output, tolerance=1e-6
            )
        ),
    )


def _three_layers(key):
    net = MLP.init(3, 4, 4, 2, activation=layers.sigmoid, key=key)
    return tree.axpy(0.5, tree.normal_like(jr.fold_in(key, 1), net), net)  # with biases


@claim(
    "2.2-permutation",
    title="Hidden units have no order",
    kind="identity",
    of=("models.permute_units",),
    cites="Hecht-Nielsen 1990",
)
def permutation_symmetry(key, rng):
    r"""For a permutation matrix $P$, $P^{-1}\varphi(PWx + Pb) = \varphi(Wx + b)$. So
    $W_1 \to PW_1$, $b_1 \to Pb_1$, $W_2 \to W_2 P^\top$ leaves a network's function unchanged: each
    hidden layer of $m$ units has $m!$ equivalent sets of weights, and the gradients of any loss are
    permuted in the same way. Other orthogonal matrices do not have this property.
    """
    net = _three_layers(key)
    xs = jr.normal(jr.fold_in(key, 2), (16, 3))
    batch = xs, jr.normal(jr.fold_in(key, 3), (16, 2))
    compiled = jax.jit(predict)
    slopes = jax.jit(jax.grad(train.squared_error))
    outputs = lambda model: compiled(model, xs)
    slope = lambda model: slopes(model, batch)
    twins = [models.permute_units(net, layer, order) for layer in (0, 1) for order in ORDERS]
    expected = np.asarray(outputs(net))
    gradient = slope(net)
    permuted_gradients = [
        models.permute_units(gradient, layer, order) for layer in (0, 1) for order in ORDERS
    ]
    distances = [
        tree.norm(tree.axpy(-1.0, slope(a), b)).item() for a, b in zip(twins, permuted_gradients)
    ]
    vectors = np.stack([tree.ravel(twin)[0] for twin in twins[:24]])
    P = np.eye(4)[[2, 0, 3, 1]]
    first = net.body.layers[0]
    x = np.asarray(xs[0])
    W = np.asarray(first.W)
    b = np.asarray(first.b)
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    relu = lambda z: np.maximum(z, 0)

    def commutes(name, M, phi):
        return close(
            f"{name}, M⁻¹φ(MWx + Mb)", np.linalg.inv(M) @ phi(M @ (W @ x + b)), phi(W @ x + b)
        )

    twin_outputs = np.stack([outputs(twin) for twin in twins])
    return Verdict(
        close("outputs of all 2 · 24 permuted networks", twin_outputs, np.stack([expected] * 48)),
        at_most("distance of their gradients from the permuted gradient", max(distances), 1e-12),
        equal(
            "distinct weights among the permutations of one layer",
            len(np.unique(vectors, axis=0)),
            24,
        ),
        commutes("permutation, sigmoid", P, special.expit),
        commutes("permutation, rectifier", P, relu),
        refuted(commutes("rotation, sigmoid", Q, special.expit)),
        refuted(commutes("rotation, rectifier", Q, relu)),
    )


def _permutation_matrices():
    """All 0/1 matrices of size 4 with one 1 in every row and column, by brute force."""
    bits = np.array(list(product((0.0, 1.0), repeat=4)))
    rows = bits[bits.sum(axis=1) == 1]
    stacks = np.array(list(product(rows, repeat=4)))
    return stacks[(stacks.sum(axis=1) == 1).all(axis=1)]


def _applied_permutations():
    """The matrices P by which `permute_units` permutes 4 units: its results for W = I."""
    eye = jnp.eye(4)
    net = Chain(Linear(eye, jnp.zeros(4)), layers.tanh, Linear(eye, jnp.zeros(4)))
    return np.stack([models.permute_units(net, 0, order).layers[0].W for order in ORDERS])


@claim(
    "2.2-permutation-matrix",
    title="Permutation matrices",
    kind="definition",
    of=("models.permute_units",),
)
def permutation_matrices(key):
    r"""A permutation matrix has entries 0 and 1, exactly one 1 in every row and column; then
    $P^{-1} = P^\top$.
    """
    matrices = _permutation_matrices()
    applied = _applied_permutations()
    squares = matrices @ matrices.transpose(0, 2, 1)
    return Verdict(
        equal("number of permutation matrices of size 4", len(matrices), 24, method="brute force"),
        equal(
            "matrices applied by permute_units",
            np.unique(applied, axis=0),
            np.unique(matrices, axis=0),
        ),
        equal("P Pᵀ", squares, np.broadcast_to(np.eye(4), squares.shape)),
    )


@erratum(
    "2.2-permutation-matrix",
    title="Row and column sums of 1 do not imply a permutation matrix",
    printed=r"\sum_i P_{ij} = \sum_j P_{ij} = 1",
    corrected=r"P_{ij} \in \{0, 1\},\quad \sum_i P_{ij} = \sum_j P_{ij} = 1",
    of=("models.permute_units",),
)
def permutation_matrices_erratum(key):
    r"""An earlier version of the notes required only that rows and columns sum to 1. That is not
    enough: the matrix with all entries $\frac12$ has such sums and no inverse. The entries must
    also be 0 or 1.
    """
    half = np.full((2, 2), 0.5)
    applied = _applied_permutations()
    inverts = lambda name, P: close(f"P Pᵀ, {name}", P @ P.T, np.eye(len(P)))
    sums = [
        equal(
            "row and column sums of the matrix of halves",
            np.array([half.sum(0), half.sum(1)]),
            np.ones((2, 2)),
        ),
        equal(
            "row and column sums of the matrices applied by permute_units",
            np.stack([applied.sum(2), applied.sum(1)]),
            np.ones((2, 24, 4)),
        ),
    ]
    return Verdict(
        *[inverts(f"matrix {i + 1} applied by permute_units", P) for i, P in enumerate(applied)],
        equal(
            "entries of the matrices applied by permute_units",
            np.unique(applied),
            np.array([0.0, 1.0]),
        ),
        assumptions=sums,
        printed=[inverts("all entries one half", half)],
    )


@claim(
    "2.2-act-linear",
    "2.2-act-sigmoid",
    "2.2-act-relu",
    title="Activations and their slopes",
    kind="layer",
    of=("layers.identity", "layers.sigmoid", "layers.relu"),
)
def activations(key):
    r"""The identity has slope 1; the sigmoid has $\sigma' = \sigma(1 - \sigma)$, with maximum
    $\frac14$ at 0; the rectifier $(z)_+ = \max(0, z)$ has slope $1\{z > 0\}$, any value of $[0, 1]$
    at 0, with $(z)_+ - (-z)_+ = z$ and $(cz)_+ = c (z)_+$ for $c \ge 0$.
    """
    z = np.linspace(-6, 6, 241)
    nonzero = z[np.abs(z) > 0.01]
    zs = jnp.asarray(z)

    def slopes(phi, z):
        step = 1e-3
        return np.asarray(
            sum(c * phi(jnp.asarray(z + k * step)) for k, c in ((-2, 1), (-1, -8), (1, 8), (2, -1)))
        ) / (12 * step)

    s = special.expit(z)
    sigmoid_slopes = slopes(layers.sigmoid, z)
    relu = np.asarray(layers.relu(zs))
    scales = np.array([0.0, 0.3, 2.0, 7.5])
    scaled = np.stack([layers.relu(c * zs) for c in scales])
    numeric = {"tolerance": 1e-9, "method": "finite differences"}
    lines = {"identity": (z, z), "sigmoid": (z, s), "rectifier": (z, np.maximum(0, z))}
    slope_lines = {
        "identity": (z, np.ones_like(z)),
        "sigmoid": (z, sigmoid_slopes),
        "rectifier": (nonzero, slopes(layers.relu, nonzero)),
    }
    return Verdict(
        equal("identity", layers.identity(zs), z),
        close("slope of the identity", slopes(layers.identity, z), np.ones_like(z), **numeric),
        close("slope of the sigmoid", sigmoid_slopes, s * (1 - s), **numeric),
        close("largest slope of the sigmoid", sigmoid_slopes.max(), 0.25, **numeric),
        close("argument of the largest slope", z[sigmoid_slopes.argmax()], 0.0),
        equal("rectifier", relu, np.array([max(0.0, v) for v in z])),
        close(
            "slope of the rectifier away from 0",
            slopes(layers.relu, nonzero),
            (nonzero > 0) * 1.0,
            **numeric,
        ),
        between(
            "slope of the rectifier at 0",
            jax.grad(layers.relu)(0.0).item(),
            0.0,
            1.0,
            method="exact",
        ),
        equal("(z)₊ − (−z)₊", relu - np.asarray(layers.relu(-zs)), z),
        close("(cz)₊ against c(z)₊", scaled, scales[:, None] * relu),
        refuted(close("(−z)₊ against −(z)₊", layers.relu(-zs), -relu, tolerance=1e-6)),
        figure=Chart(Panel("z", "activation", lines=lines), Panel("z", "slope", lines=slope_lines)),
    )


@claim(
    "2.3-linear-closed",
    title="Linear layers collapse into one layer",
    kind="identity",
    of=("models.merge_linear_layers",),
)
def linear_layers_collapse(rng):
    r"""The composition of affine layers is one affine map, $W = W_L \cdots W_1$ and
    $b = \sum_\ell W_L \cdots W_{\ell+1} b_\ell$, whose rank is at most the least width: depth
    without activations adds no functions.
    """
    sizes = (5, 7, 6, 2, 8, 6, 4)
    weights = [
        (rng.normal(size=(m, n)) / np.sqrt(n), rng.normal(size=m)) for n, m in pairwise(sizes)
    ]
    net = MLP(Chain(*[Linear(jnp.asarray(W), jnp.asarray(b)) for W, b in weights]))
    collapsed = models.merge_linear_layers(net)
    tails = [np.eye(4)]  # W_L … W_{ℓ+1}, from the last layer backwards
    for W, _ in weights[:0:-1]:
        tails.append(tails[-1] @ W)
    xs = jnp.asarray(rng.normal(size=(50, 5)))
    with_tanh = Chain(*[part for layer in net.body.layers for part in (layer, layers.tanh)][:-1])
    return Verdict(
        close(
            "outputs of the six layers and of the collapsed layer",
            jax.vmap(collapsed)(xs),
            jax.vmap(net)(xs),
            tolerance=1e-10,
        ),
        close(
            "W, as a product",
            collapsed.W,
            np.linalg.multi_dot([W for W, _ in weights[::-1]]),
            tolerance=1e-10,
        ),
        close(
            "b, as a sum",
            collapsed.b,
            sum(T @ b for T, (_, b) in zip(tails, weights[::-1])),
            tolerance=1e-10,
        ),
        equal(
            "rank through a bottleneck of width 2",
            np.linalg.matrix_rank(np.asarray(collapsed.W)),
            2,
        ),
        refuted(
            close(
                "with tanh between the layers",
                jax.vmap(with_tanh)(xs),
                jax.vmap(collapsed)(xs),
                tolerance=1e-3,
            )
        ),
    )
