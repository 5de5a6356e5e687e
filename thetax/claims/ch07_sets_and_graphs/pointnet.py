"""§7.3: PointNet, its transforms, and the classification and segmentation of point clouds."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ...core import iterate, predict, run
from ...data import primitive_clouds
from ...layers import TNet, orthogonality_penalty, softmax
from ...models import (
    MLP,
    PointNet,
    PointNetFeatures,
    PointNetSegmentation,
    PointNetWidths,
    critical_points,
)
from ...plot import Arrow, Box, Diagram, Panel
from ...train import cross_entropy, descend, error_rate, with_orthogonal_transform
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .permutations import all_orders, equivariance_error, invariance_error
from .sets_by_loop import features, generic, mlp, relu, shared, slope_and_differences, transform

QI = "Qi et al. 2017"
NARROW = PointNetWidths((8, 4), (8, 12), (8,), (8, 8), (4, 6), (5,))


def tnet(key) -> TNet:
    """A small T-net with generic weights, far from the identity."""
    return generic(TNet.init(3, widths=(4, 6), head_widths=(5,), key=key), key, 0.6)


@claim(
    "7.3-pointnet-tnet",
    title="The T-net",
    kind="layer",
    of=("layers.TNet",),
    cites=QI,
)
def transform_net(key, rng):
    r"""$X \mapsto X\,T(X)$ with a matrix $T(X)$ from a shared MLP, the maximum over the points and
    a network. Initially $T(X) = I$. $T$ is invariant under permutations, so $X\,T(X)$ is
    equivariant.
    """
    X, orders = rng.normal(size=(5, 3)), all_orders(5)
    paper = jax.eval_shape(lambda key: TNet.init(64, key=key), key)
    widths = [layer.W.shape[0] for net in (paper.points, paper.head) for layer in net.layers]
    at_start = TNet.init(3, widths=(4, 6), head_widths=(5,), key=key)
    net = tnet(key)
    weights = jnp.asarray(rng.normal(size=(3, 3)))
    slope, differences = slope_and_differences(
        lambda net: jnp.vdot(weights, net(jnp.asarray(X))), net
    )
    moved = lambda X: X @ net(X)
    return Verdict(
        equal("widths of the paper's T-net", widths, [64, 128, 1024, 512, 256]),
        equal("numbers of its last layer", paper.last.W.shape, (64 * 64, 256)),
        equal("T(X) at initialisation", at_start(jnp.asarray(X)), np.eye(3)),
        close("T(X) by a loop", net(jnp.asarray(X)), transform(net, X)),
        at_most("T(PX) = T(X), 120 orders", invariance_error(net, X, orders), 1e-12),
        at_most("X T(X) equivariant, 120 orders", equivariance_error(moved, X, orders), 1e-12),
        refuted(at_most("X T(X) invariant", invariance_error(moved, X, orders), 1e-3)),
        close_derivative(f"gradient in all {len(slope)} parameters", slope, differences),
    )


@erratum(
    "7.3-pointnet-tnet",
    title="The transform of a T-net is not rigid",
    printed=r"T T^\top = I",
    corrected=r"T \in \mathbb{R}^{k \times k} \text{ is any matrix}",
    of=("layers.TNet", "layers.orthogonality_penalty"),
    cites=QI,
    slip=True,
)
def not_rigid(key, rng):
    r"""The notes call the transforms rigid. The network can put out any matrix: with the right bias
    it gives a given one, and with random weights $T T^\top$ is far from $I$.
    """
    X = jnp.asarray(rng.normal(size=(5, 3)))
    net, A = tnet(key), rng.normal(size=(3, 3))
    T = net(X)
    constant = eqx.tree_at(
        lambda net: (net.last.W, net.last.b),
        net,
        (jnp.zeros_like(net.last.W), jnp.asarray(A.ravel())),
    )
    distance = lambda T: np.linalg.norm(T @ T.T - np.eye(3))
    return Verdict(
        close("a given matrix as T", constant(X), A),
        close(
            "‖TTᵀ − I‖² is the penalty", orthogonality_penalty(T), distance(T) ** 2, relative=True
        ),
        at_least("‖TTᵀ − I‖ with random weights", distance(np.asarray(T)), 0.1),
        printed=[close("T Tᵀ = I with random weights", T @ T.T, np.eye(3), tolerance=0.1)],
    )


@claim(
    "7.3-tnet-reg",
    title="The orthogonality penalty",
    kind="loss",
    of=("layers.orthogonality_penalty", "train.with_orthogonal_transform"),
    cites=QI,
)
def penalty(key, rng):
    r"""$\|I - T T^\top\|_F^2$ is 0 for orthogonal $T$, has the gradient $-4 (I - T T^\top)\,T$, and
    descent from a random $T$ leads to singular values of 1.
    """
    T, other = rng.normal(size=(2, 6, 6))
    orthogonal = jnp.asarray(np.linalg.qr(other)[0])
    gradient = np.asarray(jax.grad(orthogonality_penalty)(jnp.asarray(T)))
    by_formula = -4 * (np.eye(6) - T @ T.T) @ T
    loss = lambda T, batch, *, key=None: orthogonality_penalty(T)
    start = jnp.asarray(0.5 * rng.normal(size=(6, 6)))
    end = iterate(descend(loss, optax.sgd(0.02)), start, 2000, key=key)[0].model
    net = generic(PointNet.init(2, widths=NARROW, key=key), key)
    xs = rng.normal(size=(3, 5, 3))
    batch = jnp.asarray(xs), jnp.array([0, 1, 1])
    extra = with_orthogonal_transform(cross_entropy, strength=0.7)(net, batch) - cross_entropy(
        net, batch
    )
    transforms = []
    for X in xs:
        local = shared(net.features.local, X @ transform(net.features.input_net, X))
        transforms.append(transform(net.features.feature_net, local))
    looped = [np.linalg.norm(np.eye(4) - T @ T.T) ** 2 for T in transforms]
    singular = np.linalg.svd(np.asarray(end), compute_uv=False)
    return Verdict(
        at_most("penalty of an orthogonal matrix", orthogonality_penalty(orthogonal), 1e-20),
        close(
            "penalty of a random one",
            orthogonality_penalty(jnp.asarray(T)),
            ((np.eye(6) - T @ T.T) ** 2).sum(),
        ),
        close("gradient", gradient, by_formula, relative=True),
        close_derivative(
            "gradient", gradient, jacobian(orthogonality_penalty, T), tolerance=1e-8, relative=True
        ),
        close("singular values after descent", singular, np.ones(6), tolerance=1e-3),
        refuted(
            close(
                "singular values before",
                np.linalg.svd(np.asarray(start), compute_uv=False),
                np.ones(6),
                tolerance=1e-3,
            )
        ),
        close(
            "the objective adds 0.7 times the mean", extra, 0.7 * np.mean(looped), tolerance=1e-10
        ),
    )


def extractor(key) -> PointNetFeatures:
    """A narrow feature extractor with generic weights."""
    return generic(PointNetFeatures.init(3, widths=NARROW, key=key), key)


@claim(
    "7.3-pointnet-feat",
    title="Local and global features of a point cloud",
    kind="model",
    of=("models.PointNetFeatures",),
    cites=QI,
)
def extract(key, rng):
    r"""Points $N \times 3$, a T-net, an MLP (64, 64), a T-net for the 64 local features, an MLP
    (64, 128, 1024), and the maximum over the points: the features of the points are equivariant,
    the global feature is invariant.
    """
    paper = jax.eval_shape(lambda key: PointNetFeatures.init(key=key), key)
    shapes = [
        [a.shape for a in jax.eval_shape(lambda net, X: net(X)[:3], paper, jnp.ones((N, 3)))]
        for N in (1, 16, 200)
    ]
    expected = [[(N, 64), (N, 1024), (1024,)] for N in (1, 16, 200)]
    net, X, orders = extractor(key), rng.normal(size=(5, 3)), all_orders(5)
    local, points = features(net, X)
    found = net(jnp.asarray(X))
    return Verdict(
        equal("shapes with the paper's widths are as stated", shapes == expected, True),
        close("local features by a loop", found.local, local),
        close("features of the points by a loop", found.points, points),
        close("the global feature by a loop", found.whole, points.max(axis=0)),
        at_most(
            "features of the points equivariant, 120 orders",
            equivariance_error(lambda X: net(X).points, X, orders),
            1e-12,
        ),
        at_most(
            "global feature invariant, 120 orders",
            invariance_error(lambda X: net(X).whole, X, orders),
            1e-12,
        ),
    )


@erratum(
    "7.3-pointnet-feat",
    title="The features of the points are equivariant",
    printed=r"\varphi(PX) = \varphi(X)",
    corrected=r"\varphi(PX) = P\, \varphi(X)",
    of=("models.PointNetFeatures",),
    cites=QI,
    slip=True,
)
def not_invariant(key, rng):
    r"""The notes call the feature extractor $\varphi$ permutation invariant. Its features of the
    points are equivariant; only their maximum is invariant. Nor does $\varphi$ act on each point by
    itself: it depends on the others through $T(X)$.
    """
    net, X, orders = extractor(key), rng.normal(size=(5, 3)), all_orders(5)
    points = lambda X: net(X).points
    slopes = np.abs(jacobian(jax.jit(points), X)).max(axis=(1, 3))
    return Verdict(
        at_most("φ(PX) = P φ(X)", equivariance_error(points, X, orders), 1e-12),
        at_most(
            "max φ(PX) = max φ(X)",
            invariance_error(lambda X: points(X).max(axis=0), X, orders),
            1e-12,
        ),
        at_least("∂φ_m/∂x_k for k ≠ m", slopes[~np.eye(5, dtype=bool)].max(), 1e-4),
        printed=[at_most("φ(PX) = φ(X)", invariance_error(points, X, orders), 1e-3)],
    )


@claim(
    "7.3-pointnet-cls",
    title="Classification of point clouds",
    kind="model",
    of=("models.PointNet", "models.critical_points", "layers.softmax"),
    cites=QI,
)
def classify(key, rng):
    r"""$\mathrm{softmax}(\rho(\max_m \varphi(X)_m))$ with an MLP (512, 256, k) for $\rho$ does not
    depend on the order of the points. Repeated points do not change it, and of all points only the
    critical ones, which attain a maximum, matter.
    """
    paper = jax.eval_shape(lambda key: PointNet.init(10, key=key), key)
    widths = [layer.W.shape[0] for layer in paper.head.body.layers if hasattr(layer, "W")]
    net = generic(PointNet.init(3, widths=NARROW, dropout=0.0, key=key), key)
    X, few = rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    f = jax.jit(lambda X: net(X))
    logits = f(jnp.asarray(X))
    looped = mlp(net.head, features(net.features, X)[1].max(axis=0), relu)
    e = np.exp(looped - looped.max())
    critical = np.asarray(critical_points(net, jnp.asarray(X)).is_critical)
    same = {"tolerance": 1e-12, "relative": True}
    return Verdict(
        equal("widths of the paper's classifier", widths, [512, 256, 10]),
        close("logits by a loop", logits, looped, **same),
        close("probabilities by a loop", softmax(logits), e / e.sum()),
        close("their sum", softmax(logits).sum(), 1.0),
        at_most("logits invariant, 120 orders", invariance_error(f, few, all_orders(5)), 1e-12),
        close("logits with a point repeated", f(jnp.asarray(X[[*range(40), 7]])), logits, **same),
        at_least("points that are not critical, of 40", (~critical).sum(), 5),
        close("logits of the critical points", f(jnp.asarray(X[critical])), logits, **same),
        refuted(
            close("logits of the others", f(jnp.asarray(X[~critical])), logits, tolerance=1e-6)
        ),
    )


@claim(
    "7.3-pointnet-seg",
    title="Segmentation of point clouds",
    kind="model",
    of=("models.PointNetSegmentation", "layers.softmax"),
    cites=QI,
)
def segment(key, rng):
    r"""Each point gets its 64 local and the 1024 global features, a shared MLP (512, 256, 128, m)
    and a softmax: equivariant, and through the global feature every point depends on the others.
    """
    paper = jax.eval_shape(lambda key: PointNetSegmentation.init(4, key=key), key)
    layers = (*paper.head.layers, *paper.last.layers)
    widths = [layers[0].W.shape[1], *(layer.W.shape[0] for layer in layers)]
    init = PointNetSegmentation.init(3, widths=NARROW, key=key)
    net, X = generic(init, key), rng.normal(size=(5, 3))
    f = jax.jit(lambda X: softmax(net(X), axis=1))
    y = np.asarray(f(jnp.asarray(X)))
    local, points = features(net.features, X)
    rows = np.concatenate([local, np.tile(points.max(axis=0), (5, 1))], axis=1)
    e = np.exp(shared(net.last, shared(net.head, rows)))
    plain = dataclasses.replace(net.features, input_net=None, feature_net=None)
    no_transforms = dataclasses.replace(net, features=plain)
    width = NARROW.local[-1]
    first = lambda net: net.head.layers[0].W
    local_only = eqx.tree_at(first, no_transforms, first(net).at[:, width:].set(0))
    seen = lambda net: np.abs(jacobian(jax.jit(lambda X: net(X)), X)).max(axis=(1, 3))
    off = ~np.eye(5, dtype=bool)
    return Verdict(
        equal("widths of the paper's network", widths, [1088, 512, 256, 128, 4]),
        close("by a loop", y, e / e.sum(axis=1, keepdims=True)),
        close("row sums", y.sum(axis=1), np.ones(5)),
        at_most("equivariant, 120 orders", equivariance_error(f, X, all_orders(5)), 1e-12),
        close(
            "local features only: dependence on other points",
            seen(local_only)[off],
            0.0,
            tolerance=1e-10,
        ),
        at_least("with the global feature", seen(no_transforms)[off].max(), 1e-3),
    )


CLASSES = ("sphere", "cube", "torus", "plane")
N_CLOUDS, N_POINTS = 400, 64


def trained(objective: Any, model: Any, data: Any, *, steps: int, key: Any) -> Any:
    """The model after `steps` steps of Adam on random batches of 32."""
    rows = jr.randint(key, (steps, 32), 0, len(data[1]))
    adam = optax.adam(optax.cosine_decay_schedule(2e-3, steps))
    adam = optax.chain(optax.clip_by_global_norm(1.0), adam)
    state, _ = run(descend(objective, adam), model, jax.tree.map(lambda a: a[rows], data), key=key)
    return state.model


@claim(
    "7.3-pointnet-experiment",
    title="PointNet classifies shapes in any order of the points",
    kind="experiment",
    of=("models.PointNet", "models.MLP", "data.primitive_clouds"),
    cites=QI,
)
def shapes(key, scale):
    r"""Spheres, cubes, tori and planes of 64 points: PointNet with an eighth of the paper's widths
    has a test accuracy of at least 0.9, for every order of the points. An MLP of the concatenated
    coordinates, trained on sorted points, loses at least 20 points when they are shuffled.
    """
    steps = 600 if scale == "full" else 250
    k_data, k_init, k_fit, k_shuffle = jr.split(key, 4)
    xs, ys, _ = primitive_clouds(
        N_CLOUDS, n_points=N_POINTS, shapes=CLASSES, stretch=1.2, rotate=False, key=k_data
    )
    order = jnp.argsort(xs[..., 0] + 10 * xs[..., 2].round(1), axis=1)
    xs = jnp.take_along_axis(xs, order[..., None], axis=1).astype(jnp.float32)
    shuffled = jax.vmap(lambda x, key: jr.permutation(key, x))(xs, jr.split(k_shuffle, N_CLOUDS))
    train = xs[:320], ys[:320]
    single = lambda model: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), model)
    net = single(PointNet.init(4, widths=PointNetWidths().divided_by(8), dropout=0.0, key=k_init))
    flat = single(MLP.init(3 * N_POINTS, 64, 32, 4, key=k_init))
    fit = jax.jit(lambda net, key: trained(cross_entropy, net, train, steps=steps, key=key))
    net, flat = fit(net, k_fit), fit(flat, k_fit)
    accuracy = lambda model, xs: 1 - float(error_rate(model, (xs[320:], ys[320:])))
    logits = [
        np.asarray(jax.jit(predict)(net, X)).argmax(axis=1) for X in (xs[320:], shuffled[320:])
    ]
    results = {
        name: [accuracy(model, X) for X in (xs, shuffled)]
        for name, model in (("PointNet", net), ("MLP", flat))
    }
    return Verdict(
        at_least("PointNet: test accuracy", results["PointNet"][0], 0.9),
        equal("PointNet: classes of shuffled clouds", logits[1], logits[0]),
        at_least("MLP: test accuracy lost by shuffling", -np.diff(results["MLP"])[0], 0.2),
        refuted(
            at_least(
                "PointNet: test accuracy lost by shuffling", -np.diff(results["PointNet"])[0], 0.2
            )
        ),
        figure=Panel(
            "0 sorted, 1 shuffled points",
            "test accuracy",
            lines={name: ([0, 1], values) for name, values in results.items()},
        ),
    )


@claim(
    "7.3-fig-pointnet",
    title="Diagram of PointNet",
    kind="figure",
    of=("models.PointNetSegmentation", "plot.Diagram", "plot.Box", "plot.Arrow"),
    cites=QI,
)
def figure(key):
    r"""The widths of a point on its way through PointNet: 3 coordinates, 64 local features, 64
    after the second transform, 1024 before the maximum, and 1088 with both for the segmentation.
    """
    net = jax.eval_shape(lambda key: PointNetSegmentation.init(50, key=key), key)
    found = jax.eval_shape(lambda net, X: net.features(X), net, jnp.ones((7, 3)))
    widths = [
        net.features.local.layers[0].W.shape[1],
        net.features.local.n_outputs,
        found.local.shape[1],
        found.points.shape[1],
        net.head.layers[0].W.shape[1],
    ]
    narrow = jax.eval_shape(
        lambda key: PointNetSegmentation.init(50, widths=NARROW, key=key).head.layers[0].W, key
    )
    names = ["points", "local", "transformed", "before max", "segmentation"]
    boxes = {
        name: Box(2.4 * i, 0, 1.9, 0.7, f"{name} {width}")
        for i, (name, width) in enumerate(zip(names, widths))
    }
    words = ("T-net 3, MLP", "T-net 64", "MLP", "max, concat")
    arrows = [Arrow(a, b, word) for a, b, word in zip(names, names[1:], words)]
    return Verdict(
        equal("widths", widths, [3, 64, 64, 1024, 1088]),
        equal(
            "T-nets",
            [found.input_transform.shape, found.feature_transform.shape],
            [(3, 3), (64, 64)],
        ),
        refuted(equal("narrow network: input of the segmentation", narrow.shape[1], 1088)),
        figure=Diagram(boxes, arrows),
    )
