r"""§9.4: the scaling of weights for which the kernel has a limit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...explain import infinite_width_limit
from ...layers import Initialiser, Linear, gaussian, lecun, ntk_parametrisation, relu
from ...models import MLP
from ...plot import Panel
from ..engine.check import between, close, refuted, within
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng
from .width import SEEDS, WIDTHS, kernels

NEAR = {"tolerance": 0.02, "relative": True, "method": "brute force"}
SIGMA_W, SIGMA_B, UNITS = 1.5, 1.2, 1000


def preactivations(m: int, initialiser: Initialiser, key: Any, *, biases: float = 0.0) -> Any:
    """The mean squares of the pre-activations of a layer of many units on m ReLUs, and of the
    ReLUs, with or without random biases.
    """
    key_h, key_layer, key_b = jr.split(key, 3)

    @jax.jit
    def squares(key_h, key_layer, key_b):
        h = relu(jr.normal(key_h, (m,)))
        z = Linear.init(m, UNITS, initialiser=initialiser, key=key_layer)(h) + biases * jr.normal(
            key_b, (UNITS,)
        )
        return jnp.mean(z**2), jnp.mean(h**2)

    return squares(key_h, key_layer, key_b)


def sizes(
    initialiser: Callable[[int], Initialiser],
    key: Any,
    biases: Callable[[int], float] = lambda m: 0.0,
) -> np.ndarray:
    """For each width the mean square of pre-activations, and of the activations before them."""
    keys = jr.split(key, len(WIDTHS))
    return np.array(
        [preactivations(m, initialiser(m), k, biases=biases(m)) for m, k in zip(WIDTHS, keys)]
    ).T


def expected(measured: np.ndarray, bias: float) -> np.ndarray:
    r"""$\sigma_w^2 \overline{h^2} + \sigma_b^2$."""
    return SIGMA_W**2 * measured[1] + bias**2


def same_size(name: str, measured: np.ndarray, bias: float) -> Any:
    """Checks that pre-activations have the same variance at every width."""
    variance = expected(measured, bias)
    return within(
        f"{name}, m = 100 … 10,000", measured[0], variance, error=variance * np.sqrt(2 / UNITS)
    )


@claim(
    "9.4-init-scaling",
    title="Weights scale with the width",
    kind="definition",
    of=("layers.ntk_parametrisation", "layers.gaussian", "layers.Linear"),
    cites="Jacot et al. 2018",
)
def scaling(key):
    r"""With $w \sim N(0, \sigma_w^2 / m)$ for $m$ units below, pre-activations have the variance
    $\sigma_w^2 \overline{h^2} + \sigma_b^2$ whatever $m$ is. The NTK parametrisation writes
    $\frac{\sigma_w}{\sqrt m} \omega$ and $\sigma_b \beta$ for weights and biases, with trained
    parameters $\omega, \beta \sim N(0, 1)$.
    """
    key_tangent, key_plain, key_wide = jr.split(key, 3)
    initialiser = ntk_parametrisation(weight=SIGMA_W, bias=SIGMA_B)
    layer = Linear.init(400, 300, initialiser=initialiser, key=key)
    parts = jax.tree.leaves(layer)
    constant = sizes(lambda m: gaussian(0.1), key_wide)
    return Verdict(
        same_size("NTK parametrisation", sizes(lambda m: initialiser, key_tangent), SIGMA_B),
        same_size(
            "weights of variance σ_w²/m",
            sizes(lambda m: gaussian(SIGMA_W / m**0.5), key_plain),
            0.0,
        ),
        refuted(same_size("weights of constant variance", constant, 0.0)),
        within(
            "trained parameters: mean square of ω and β",
            [np.mean(np.square(part)) for part in parts],
            np.ones(2),
            error=[np.sqrt(2 / part.size) for part in parts],
        ),
        close("their factor", [layer.scale_W, layer.scale_b], [SIGMA_W / 20, SIGMA_B]),
    )


@erratum(
    "9.4-init-scaling",
    title="A variance, scaled by the number of units",
    printed=r"w \sim N\big(0, \tfrac{\sigma_w}{\sqrt{m}}\big), \quad b \sim N\big(0, "
    r"\tfrac{\sigma_b}{\sqrt{m}}\big)",
    corrected=r"w \sim N\big(0, \tfrac{\sigma_w^2}{m}\big), \quad b \sim N(0, \sigma_b^2)",
    of=("layers.gaussian", "layers.ntk_parametrisation", "layers.Linear"),
)
def scaling_printed(key):
    r"""The second argument of $N$ is a variance, and $\sigma_w / \sqrt m$ is a standard deviation:
    as printed the variance of pre-activations grows as $\sqrt m$. Divided by the number of the
    layer's parameters, as $m$ is defined, they vanish, and so do biases of the printed variance.
    """
    keys = jr.split(key, 4)
    right = sizes(lambda m: ntk_parametrisation(weight=SIGMA_W, bias=SIGMA_B), keys[0])
    root = sizes(lambda m: gaussian((SIGMA_W / m**0.5) ** 0.5), keys[1])
    parameters = sizes(lambda m: gaussian(SIGMA_W / (m * UNITS) ** 0.5), keys[2])
    vanishing = sizes(
        lambda m: gaussian(SIGMA_W / m**0.5), keys[3], lambda m: (SIGMA_B / m**0.5) ** 0.5
    )
    growth = lambda result, bias: np.polyfit(
        np.log(WIDTHS), np.log(result[0] / expected(result, bias)), 1
    )[0]
    power = lambda result, bias: between(
        "power of m in the variance", growth(result, bias), -0.1, 0.1
    )
    return Verdict(
        same_size("weights of variance σ_w²/m, biases of variance σ_b²", right, SIGMA_B),
        power(right, SIGMA_B),
        printed=[
            same_size("weights of variance σ_w/√m", root, 0.0),
            power(root, 0.0),
            same_size("σ_w² over the number of parameters", parameters, 0.0),
            same_size("biases of variance σ_b/√m", vanishing, SIGMA_B),
        ],
    )


def sizes_of_kernel(draw: Callable[[int, Any], Any], xs: np.ndarray, key: Any) -> np.ndarray:
    """The mean kernel of one pair of inputs over many networks, for each width."""
    keys = jr.split(key, len(WIDTHS))
    return np.array(
        [
            kernels(lambda key, m=m: draw(m, key), xs, SEEDS, k)[:, 0, 1].mean()
            for m, k in zip(WIDTHS, keys)
        ]
    )


def power_of_width(name: str, values: np.ndarray, expected: float) -> Any:
    """Checks the power of the width with which a kernel grows."""
    slope = np.polyfit(np.log(WIDTHS), np.log(values), 1)[0]
    return between(f"{name}: power of m in k(x, x')", slope, expected - 0.05, expected + 0.05)


def pair(key: Any) -> np.ndarray:
    """Two inputs of norm 2 at an angle of 60 degrees."""
    Q = np.linalg.qr(numpy_rng(key).normal(size=(4, 2)))[0]
    return 2 * np.array([[1.0, 0.0], [0.5, 0.75**0.5]]) @ Q.T


def tangent_net(m: int, key: Any) -> Any:
    """Standard normal weights, and the scale in the forward pass."""
    return MLP.init(4, m, 1, initialiser=ntk_parametrisation(weight=1.0), key=key)


def plain_net(m: int, key: Any) -> Any:
    """The same initial function, with the scale in the weights."""
    return MLP.init(4, m, 1, initialiser=lecun, key=key)


@claim(
    "9.4-init-kernel-limit",
    title="Which parametrisation has an infinite-width limit",
    kind="theorem",
    of=(
        "explain.ntk",
        "explain.infinite_width_limit",
        "layers.ntk_parametrisation",
        "layers.lecun",
    ),
    cites="Jacot et al. 2018",
)
def has_a_limit(key):
    r"""A network in two parametrisations is the same initial function with different tangent
    kernels: in the NTK parametrisation the kernel converges as the width $m$ grows, in the standard
    one it grows like $m$, and converges when divided by $m$, or with a learning rate $\propto 1/m$.
    """
    xs = pair(key)
    ours, plain = (
        sizes_of_kernel(draw, xs, k) for draw, k in zip((tangent_net, plain_net), jr.split(key))
    )
    limit = float(infinite_width_limit(tangent_net(4, key)).ntk(jnp.asarray(xs))[0, 1])
    leading = [
        float(infinite_width_limit(plain_net(m, key), initialiser=lecun).ntk(jnp.asarray(xs))[0, 1])
        for m in WIDTHS
    ]
    return Verdict(
        power_of_width("NTK parametrisation", ours, 0.0),
        close("kernel at width 10,000, against the limit", ours[-1], limit, **NEAR),
        power_of_width("standard parametrisation, LeCun's weights", plain, 1.0),
        power_of_width("divided by m", plain / np.array(WIDTHS), 0.0),
        close("at width 10,000, against its leading order", plain[-1], leading[-1], **NEAR),
        figure=Panel(
            "width m",
            "k(x, x')",
            log="xy",
            points={
                "NTK parametrisation": (WIDTHS, ours),
                "standard, LeCun": (WIDTHS, plain),
            },
            bounds={"limit": (WIDTHS, [limit] * 3), "leading order": (WIDTHS, leading)},
        ),
    )


@erratum(
    "9.4-init-kernel-limit",
    title="LeCun's scaling alone has no limit",
    printed=r"w \sim N\big(0, \tfrac{\sigma_w}{\sqrt{m}}\big) \text{ (LeCun)}, \quad k[\theta_0] "
    r"\to k_\infty",
    corrected=r"w = \tfrac{1}{\sqrt m}\, \omega, \quad \omega \sim N(0, 1), \quad k[\theta_0] \to "
    r"k_\infty",
    of=("explain.ntk", "layers.ntk_parametrisation", "layers.lecun"),
    cites="Jacot et al. 2018",
)
def has_a_limit_printed(key):
    r"""The first kernel is said to converge with the scaling above it, LeCun's by the side note,
    under suitable conditions. With respect to weights of variance $1/m$ the gradient of the first
    layer shrinks and that of the last does not, and the sum of $m$ of its squares grows like $m$;
    the factor $1/\sqrt m$ must be part of the network, in front of the trained parameters.
    """
    xs = pair(key)
    ours, plain = (
        sizes_of_kernel(draw, xs, k) for draw, k in zip((tangent_net, plain_net), jr.split(key))
    )
    return Verdict(
        power_of_width("a factor in the network", ours, 0.0),
        printed=[power_of_width("LeCun's weights", plain, 0.0)],
    )
