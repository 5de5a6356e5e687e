"""§8.5: normalisation over the batch and over the features, and its effect on training."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers
from ...core import predict
from ...plot import Panel
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


def norm(gamma, mu, *, eps: float = 0.0) -> layers.BatchNorm:
    """The library's batch norm with these parameters."""
    return layers.BatchNorm(jnp.asarray(gamma, float), jnp.asarray(mu, float), eps)


def unit(w, gamma: float = 1.0, mu: float = 0.0) -> layers.Chain:
    r"""$x \mapsto w^\top x$, then a batch norm."""
    return layers.Chain(layers.Linear(jnp.asarray(w)[None]), norm([gamma], [mu]))


@claim(
    "8.5-normalise",
    title="Standardisation and its inverse",
    kind="definition",
    of=("layers.BatchNorm",),
    cites="Ioffe & Szegedy 2015",
)
def normalise(rng):
    r"""$\bar f = (f - \mathbb{E} f) / \sqrt{\mathrm{Var} f}$ has mean 0 and variance 1, and
    $\mu + \gamma \bar f$ mean $\mu$ and variance $\gamma^2$. With $\mu = \mathbb{E} f$ and
    $\gamma = \sqrt{\mathrm{Var} f}$ it is $f$ again.
    """
    f = np.tanh(rng.normal(size=(300, 4)) @ rng.normal(size=(4, 3)) + 1) * [1.0, 5.0, 0.1]
    bar = np.asarray(predict(norm(np.ones(3), np.zeros(3)), jnp.asarray(f)))
    gamma = np.array([2.0, -0.5, 3.0])
    mu = np.array([1.0, -2.0, 0.5])
    normalised = np.asarray(predict(norm(gamma, mu), jnp.asarray(f)))
    back = np.asarray(predict(norm(f.std(axis=0), f.mean(axis=0)), jnp.asarray(f)))
    edges = np.linspace(-3, 3, 49)
    height = lambda values: np.histogram(values, bins=edges, density=True)[0]
    middle = (edges[1:] + edges[:-1]) / 2
    return Verdict(
        close("mean of f̄", bar.mean(axis=0), 0.0, tolerance=1e-13),
        close("variance of f̄", bar.var(axis=0), 1.0),
        close("mean of μ + γf̄", normalised.mean(axis=0), mu, tolerance=1e-13),
        close("variance of μ + γf̄", normalised.var(axis=0), gamma**2, tolerance=1e-11),
        close("f restored", back, f, tolerance=1e-13),
        refuted(
            close("variance of μ + γf̄, against γ", normalised.var(axis=0), gamma, tolerance=1e-6)
        ),
        figure=Panel(
            "value",
            "density",
            lines={
                "f": (middle, height(f[:, 0])),
                "f̄": (middle, height(bar[:, 0])),
                "1 + 2f̄": (middle, height(normalised[:, 0])),
            },
        ),
    )


@claim(
    "8.5-bn",
    title="Batch normalisation",
    kind="layer",
    of=("layers.BatchNorm", "layers.fold_batch_norm"),
    cites="Ioffe & Szegedy 2015",
)
def batch_norm(rng):
    r"""Each feature of a batch $B$ becomes
    $\mu + \gamma (x - \bar x_B) / \sqrt{s_B^2 + \varepsilon}$ with the mean and the biased variance
    over $B$. With the moments of the training set instead, the layer is an affine map and the
    outputs of different examples are independent.
    """
    epsilon = 1e-3
    x = 2 * rng.normal(size=(6, 3)) + 1
    c = rng.normal(size=(6, 3))
    gamma = rng.normal(size=3)
    mu = rng.normal(size=3)
    layer = norm(gamma, mu, eps=epsilon)
    result = np.asarray(predict(layer, jnp.asarray(x)))
    plain = np.asarray(predict(norm(np.ones(3), np.zeros(3)), jnp.asarray(x)))
    by_hand = mu + gamma * (x - x.mean(axis=0)) / np.sqrt(
        ((x - x.mean(axis=0)) ** 2).mean(axis=0) + epsilon
    )
    unbiased = mu + gamma * (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0, ddof=1) + epsilon)
    value = lambda gamma, mu, x: jnp.vdot(c, predict(layers.BatchNorm(gamma, mu, epsilon), x))
    point = tuple(map(jnp.asarray, (gamma, mu, x)))
    slopes = jax.grad(value, argnums=(0, 1, 2))(*point)
    partial = (
        lambda gamma: value(gamma, point[1], point[2]),
        lambda mu: value(point[0], mu, point[2]),
        lambda x: value(point[0], point[1], x),
    )
    data = rng.normal(size=(500, 3)) * [1, 2, 3] + [0, 1, 2]
    fixed = layers.fold_batch_norm(layers.Chain(layer), jnp.asarray(data))
    still = mu + gamma * (x - data.mean(axis=0)) / np.sqrt(data.var(axis=0) + epsilon)
    picture = rng.normal(size=(4, 2, 3, 5))
    image_outputs = np.asarray(predict(norm([1.0, 1.0], [0.0, 0.0]), jnp.asarray(picture)))
    return Verdict(
        close("against the formula", result, by_hand, tolerance=1e-13),
        refuted(close("with the unbiased variance", result, unbiased, tolerance=1e-3)),
        close(
            "mean of each feature, γ = 1, μ = 0, ε = 0",
            plain.mean(axis=0),
            np.zeros(3),
            tolerance=1e-14,
        ),
        close("its variance", plain.var(axis=0), np.ones(3), tolerance=1e-13),
        close(
            "channels of images: mean",
            image_outputs.mean(axis=(0, 2, 3)),
            np.zeros(2),
            tolerance=1e-14,
        ),
        *(
            close_derivative(f"∂ by {name}", slope, jacobian(f, p), tolerance=1e-9)
            for name, slope, f, p in zip(("γ", "μ", "x"), slopes, partial, point)
        ),
        close(
            "a batch of equal examples gives μ",
            predict(layer, jnp.asarray(x[[0, 0]]))[0],
            mu,
            tolerance=1e-14,
        ),
        close("folded: the moments of the data", predict(fixed, jnp.asarray(x)), still),
        close("folded: each example separately", fixed(jnp.asarray(x[0])), still[0]),
        refuted(
            close(
                "not folded: half the batch",
                predict(layer, jnp.asarray(x[:3])),
                result[:3],
                tolerance=1e-3,
            )
        ),
    )


def data(rng: np.random.Generator) -> np.ndarray:
    """Correlated inputs with a mean that is not 0."""
    return rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3)) + [2.0, -1.0, 1.5]


@claim(
    "8.5-bn-reparam",
    title="Batch norm normalises weights by the data covariance",
    kind="identity",
    of=("layers.BatchNorm", "layers.fold_batch_norm"),
    cites="Kohler et al. 2019",
)
def reparametrised(rng):
    r"""After a linear unit a batch norm gives
    $\mu + \gamma\, w^\top (x - \mathbb{E} x) / \|w\|_\Sigma$ with
    $\|w\|_\Sigma = \sqrt{w^\top \Sigma w}$, $\Sigma = \mathrm{Cov}(x)$. If $\mathbb{E} x = 0$ this
    is $\mu + \gamma \frac{w^\top x}{\|w\|_2} \cdot \frac{\|w\|_I}{\|w\|_\Sigma}$.
    """
    X = data(rng)
    w = rng.normal(size=3)
    gamma = 1.7
    mu = -0.4
    Sigma = np.cov(X.T, bias=True)
    centred = X - X.mean(axis=0)
    length = np.sqrt(w @ Sigma @ w)
    result = np.asarray(predict(unit(w, gamma, mu), jnp.asarray(X)))[:, 0]
    zero = np.asarray(predict(unit(w, gamma, mu), jnp.asarray(centred)))[:, 0]
    slope = layers.fold_batch_norm(unit(w, gamma, mu), jnp.asarray(X)).layers[1].gamma[0]
    return Verdict(
        close("the layer over the data set", result, mu + gamma * centred @ w / length),
        close("std(Xw)", gamma / slope, length),
        close(
            "inputs of mean 0: direction times ‖w‖/‖w‖_Σ",
            zero,
            mu + gamma * centred @ (w / np.linalg.norm(w)) * (np.linalg.norm(w) / length),
        ),
        refuted(
            close(
                "with the Euclidean norm of w",
                result,
                mu + gamma * centred @ w / np.linalg.norm(w),
                tolerance=1e-3,
            )
        ),
    )


@erratum(
    "8.5-bn-reparam",
    title="The covariance, not the second moment",
    printed=r"\|w\|_\Sigma = \sqrt{w^\top \Sigma w}, \quad \Sigma = \mathbb{E}[x x^\top]",
    corrected=r"\|w\|_\Sigma = \sqrt{w^\top \Sigma w}, \quad \Sigma = \mathrm{Cov}(x)",
    of=("layers.BatchNorm", "layers.fold_batch_norm"),
    slip=True,
)
def reparametrised_printed(rng):
    r"""$\Sigma$ is printed as $\mathbb{E}[xx^\top]$ one line before the inputs are assumed to have
    mean 0, with which it is the covariance. What a batch norm divides by is the standard deviation,
    whose $\Sigma$ is always the covariance.
    """
    X = data(rng)
    w = rng.normal(size=3)
    divisor = 1 / layers.fold_batch_norm(unit(w), jnp.asarray(X)).layers[1].gamma[0]
    measured = lambda Sigma: np.sqrt(w @ Sigma @ w)
    return Verdict(
        close("what the layer divides by", divisor, measured(np.cov(X.T, bias=True))),
        printed=[close("what the layer divides by", divisor, measured(X.T @ X / len(X)))],
    )


@claim(
    "8.5-bn-scale-inv",
    title="Batch norm is invariant to the scale of the weights",
    kind="theorem",
    of=("layers.BatchNorm",),
    cites="Ioffe & Szegedy 2015; van Laarhoven 2017",
)
def scale_invariant(rng):
    r"""A batch norm after $w^\top x$ has the same output for $cw$, $c > 0$; so
    $\nabla_w \ell \perp w$, and the gradient at $cw$ is $\frac1c$ of that at $w$: weights of large
    norm learn slowly.
    """
    X = data(rng)
    w = rng.normal(size=3)
    y = rng.normal(size=400)
    output = lambda w: predict(unit(w, 1.3, 0.2), jnp.asarray(X))[:, 0]
    loss = lambda w: jnp.square(jnp.tanh(output(w)) - y).mean()
    slope = lambda w: np.asarray(jax.grad(loss)(jnp.asarray(w)))
    scales = np.array([0.1, 0.3, 1.0, 3.0, 10.0])
    at = np.array([slope(c * w) for c in scales])
    gradient_without = jax.grad(lambda w: jnp.square(jnp.tanh(jnp.asarray(X) @ w) - y).mean())(
        jnp.asarray(w)
    )
    return Verdict(
        close("f at 3w", output(3 * w), output(w), tolerance=1e-13),
        refuted(close("f at −w", output(-w), output(w), tolerance=1e-3)),
        close_derivative("the gradient, by differences", at[2], jacobian(loss, w), tolerance=1e-9),
        close("w · ∇ℓ", w @ at[2] / (np.linalg.norm(w) * np.linalg.norm(at[2])), 0.0),
        refuted(
            close("w · ∇ℓ without the norm", w @ np.asarray(gradient_without), 0.0, tolerance=1e-3)
        ),
        close("∇ℓ at cw, times c", scales[:, None] * at, np.tile(at[2], (5, 1))),
        figure=Panel(
            "norm of the weights, in units of ‖w‖",
            "norm of the gradient",
            points={"measured": (scales, np.linalg.norm(at, axis=1))},
            bounds={"slope −1": (scales, np.linalg.norm(at[2]) / scales)},
            log="xy",
        ),
    )


@claim(
    "8.5-ln",
    title="Layer normalisation",
    kind="layer",
    of=("layers.LayerNorm", "layers.BatchNorm"),
    cites="Ba, Kiros & Hinton 2016",
)
def layer_norm(rng):
    r"""The moments are taken over the $d$ features of each example, with the biased variance. So
    $\mathrm{LN}(ax + b1) = \mathrm{LN}(x)$ for $a > 0$, no example depends on the others, and
    before scale and shift it is the batch norm of the transposed batch.
    """
    epsilon = 1e-3
    x = rng.normal(size=(4, 5)) * 2 + 1
    gamma = rng.normal(size=5)
    mu = rng.normal(size=5)
    c = rng.normal(size=5)
    plain = layers.LayerNorm(jnp.ones(5), jnp.zeros(5), 0.0)
    layer = layers.LayerNorm(jnp.asarray(gamma), jnp.asarray(mu), epsilon)
    result = np.asarray(predict(layer, jnp.asarray(x)))
    rows = np.asarray(predict(plain, jnp.asarray(x)))
    by_hand = mu + gamma * (x - x.mean(axis=1, keepdims=True)) / np.sqrt(
        x.var(axis=1, keepdims=True) + epsilon
    )
    point = tuple(map(jnp.asarray, (gamma, mu, x[0])))
    value = lambda gamma, mu, x: jnp.vdot(c, layers.LayerNorm(gamma, mu, epsilon)(x))
    slopes = jax.grad(value, argnums=(0, 1, 2))(*point)
    partial = (
        lambda gamma: value(gamma, point[1], point[2]),
        lambda mu: value(point[0], mu, point[2]),
        lambda x: value(point[0], point[1], x),
    )
    others = np.concatenate([x[:1], 100 * rng.normal(size=(3, 5))])
    transposed = np.asarray(predict(norm(np.ones(4), np.zeros(4)), jnp.asarray(x.T))).T
    return Verdict(
        close("against the formula", result, by_hand, tolerance=1e-13),
        close("mean of each row", rows.mean(axis=1), np.zeros(4), tolerance=1e-14),
        close("variance of each row", rows.var(axis=1), np.ones(4), tolerance=1e-13),
        *(
            close_derivative(f"∂ by {name}", slope, jacobian(f, p), tolerance=1e-9)
            for name, slope, f, p in zip(("γ", "μ", "x"), slopes, partial, point)
        ),
        close("LN(3x + 7)", predict(plain, jnp.asarray(3 * x + 7)), rows, tolerance=1e-13),
        refuted(close("LN(−x)", predict(plain, jnp.asarray(-x)), rows, tolerance=1e-3)),
        equal("within a different batch", predict(layer, jnp.asarray(others))[0], result[0]),
        close("a batch of size 1", layer(jnp.asarray(x[0])), by_hand[0], tolerance=1e-13),
        close("the batch norm of the transposed batch", transposed, rows, tolerance=1e-13),
    )


@erratum(
    "8.5-bn-why",
    title="Covariate shift, not covariance shift",
    printed=r"\text{covariance shift}",
    corrected=r"\text{covariate shift}",
    of=("layers.BatchNorm",),
    cites="Shimodaira 2000; Ioffe & Szegedy 2015",
    slip=True,
)
def covariate_shift(rng):
    r"""One word. What Ioffe and Szegedy meant to remove is internal covariate shift: the inputs $h$
    of a layer change their distribution while the layers below learn. An update of a bias below
    shifts their mean and leaves their covariance unchanged; a batch norm removes the shift.
    """
    X = jnp.asarray(data(rng))
    W = jnp.asarray(rng.normal(size=(4, 3)))
    step = 1 + rng.uniform(size=4)
    before, after = (layers.Linear(W, jnp.asarray(b)) for b in (np.zeros(4), step))
    h = [np.asarray(predict(layer, X)) for layer in (before, after)]
    out = [
        predict(layers.Chain(layer, norm(np.ones(4), np.zeros(4))), X) for layer in (before, after)
    ]
    cov = [np.cov(values.T, bias=True) for values in h]
    return Verdict(
        at_least(
            "shift of the mean of the covariates",
            np.linalg.norm(h[1].mean(axis=0) - h[0].mean(axis=0)),
            0.5,
        ),
        close("after a batch norm they are unchanged", out[1], out[0]),
        printed=[at_least("change of their covariance", np.linalg.norm(cov[1] - cov[0]), 0.5)],
    )
