"""Lecture 10, §3.10 to §3.12: the forward pass, and backpropagation with co-states."""

from functools import reduce
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from .... import layers, models, train, tree
from ....core import apply
from ....layers import Chain, Linear
from ...engine.check import close, close_derivative, equal, refuted
from ...engine.claim import Verdict, claim, erratum
from ...engine.differences import jacobian
from ..networks.deep import deep

WIDTHS = (3, 5, 4, 6, 2)  # d₀ to d_{L+1}, with L = 3


def squares(prediction, y):
    """The squared loss, looked up at each call."""
    return train.squared_loss(prediction, y)


def without_biases(rng, widths=WIDTHS):
    r"""$W_0, \dots, W_L$ without biases, and the chain of blocks $g_\ell$: $\sigma(W_\ell x_\ell)$,
    and $W_L x_L$ last.
    """
    Ws = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(widths)]
    *inner, last = [Linear(jnp.asarray(W)) for W in Ws]
    return Ws, Chain(*[Chain(layer, layers.tanh) for layer in inner], last)


def weight(gradient, ell):
    """The gradient of W in block ℓ."""
    block = gradient.layers[ell]
    return np.asarray((block.layers[0] if isinstance(block, Chain) else block).W)


backward = jax.jit(lambda chain, x, y: train.backpropagate(chain, squares, x, y))


@claim(
    "L10-3.10-forward",
    title="The forward pass, layer by layer",
    kind="algorithm",
    of=("train.backpropagate", "models.MLP"),
)
def forward(rng):
    r"""$x_0 = x$ and $x_{\ell+1} = g_\ell(x_\ell, W_\ell)$ for $\ell = 0, \dots, L$; in a network
    $g_\ell = \sigma(W_\ell x_\ell)$ and $g_L = W_L x_L$. Biases are columns of $W_\ell$ if a
    constant 1 is appended to every $x_\ell$, not only to $x$.
    """
    Ws, chain = without_biases(rng)
    x = rng.normal(size=3)
    y = rng.normal(size=2)
    results = backward(chain, jnp.asarray(x), jnp.asarray(y))
    parts = [
        part for W in Ws[:-1] for part in (Linear(jnp.asarray(W), jnp.zeros(len(W))), layers.tanh)
    ]
    net = models.MLP(Chain(*parts, Linear(jnp.asarray(Ws[-1]))))
    expected = [x]
    for W in Ws[:-1]:
        expected.append(
            np.tanh(
                [sum(W[i, j] * expected[-1][j] for j in range(W.shape[1])) for i in range(len(W))]
            )
        )
    expected.append(Ws[-1] @ expected[-1])
    Vs, bs, beta, biased = deep(rng, (3, 5, 4))
    every = np.append(x, 1.0)
    once = np.append(x, 1.0)
    for V, b in zip(Vs, bs):
        every = np.append(np.tanh(np.c_[V, b] @ every), 1.0)
        once = np.tanh(np.c_[V, b] @ once) if len(once) == V.shape[1] + 1 else np.tanh(V @ once)
    return Verdict(
        *[
            close(f"x_{ell}", got, x, tolerance=1e-14)
            for ell, (got, x) in enumerate(zip(results.activations, expected))
        ],
        close("the network with zero biases", net(jnp.asarray(x)), expected[-1], tolerance=1e-14),
        close(
            "the loss of the output",
            results.loss,
            np.sum((expected[-1] - y) ** 2) / 2,
            tolerance=1e-14,
        ),
        close(
            "biases, a 1 appended to every layer",
            biased(jnp.asarray(x)).item(),
            beta @ every[:-1],
            tolerance=1e-14,
        ),
        refuted(
            close(
                "a 1 appended only to x",
                biased(jnp.asarray(x)).item(),
                beta @ once,
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "L10-3.11-chain-rule",
    title="The gradient of one layer's weights",
    kind="identity",
    of=("train.backpropagate",),
)
def chain_rule(rng):
    r"""$\nabla_{W_\ell} \hat R = [\partial g_\ell / \partial W_\ell]^\top p_{\ell+1}$ with
    $p_\ell = \nabla_{x_\ell} L$; for $g_\ell = \sigma(a_\ell)$, $a_\ell = W_\ell x_\ell$, it is
    $(\sigma'(a_\ell) \odot p_{\ell+1})\, x_\ell^\top$.
    """
    Ws, chain = without_biases(rng)
    x = rng.normal(size=3)
    y = jnp.asarray(rng.normal(size=2))
    result = backward(chain, jnp.asarray(x), y)
    checks = []
    for ell, W in enumerate(Ws):
        h = np.asarray(result.activations[ell])
        p = np.asarray(result.deltas[ell + 1])
        last = ell == len(Ws) - 1
        block = (lambda W, h=h: W @ h) if last else (lambda W, h=h: jnp.tanh(W @ h))
        J = jacobian(block, W)  # shape of the output, then of W
        slope = 1.0 if last else 1 - np.tanh(W @ h) ** 2
        rest = lambda h, ell=ell: squares(
            reduce(lambda h, layer: apply(layer, h), chain.layers[ell + 1 :], h), y
        )
        checks += [
            close_derivative(f"p_{ell + 1}", p, jacobian(rest, result.activations[ell + 1])),
            close_derivative(
                f"W_{ell}: [∂g/∂W]ᵀ p, by a full Jacobian",
                weight(result.gradient, ell),
                np.tensordot(p, J, axes=1),
            ),
            close(
                f"W_{ell}: (σ'(a) ⊙ p) xᵀ",
                weight(result.gradient, ell),
                np.outer(slope * p, h),
                tolerance=1e-14,
            ),
        ]
    return Verdict(*checks)


def printed_loop(chain, x, y, *, first):
    r"""The backward loop as printed: $p_{L+1} = \nabla L$, then $\ell = L, \dots,$ `first`; a
    gradient for each $\ell$ it reaches.
    """
    h = [x]
    for layer in chain.layers:
        h.append(apply(layer, h[-1]))
    p = jax.grad(squares)(h[-1], y)
    results = {}
    for ell in range(len(chain.layers) - 1, first - 1, -1):
        gradient, p = jax.vjp(apply, chain.layers[ell], h[ell])[1](p)
        results[ell] = np.asarray(tree.ravel(gradient)[0])
    return results


@claim(
    "L10-3.12-backprop",
    title="Backpropagation",
    kind="algorithm",
    of=("train.backpropagate",),
    cites="Rumelhart, Hinton & Williams 1986; Squire & Trapp 1998 (the complex step)",
)
def backprop(rng):
    r"""$p_{L+1} = \nabla L$; for $\ell = L, \dots, 0$:
    $\nabla_{W_\ell} = [\partial g_\ell / \partial W_\ell]^\top p_{\ell+1}$ and
    $p_\ell = [\partial g_\ell / \partial x_\ell]^\top p_{\ell+1}$. With one unit a layer it is a
    product of numbers.
    """
    Ws, chain = without_biases(rng)
    x = rng.normal(size=3)
    y = rng.normal(size=2)
    result = backward(chain, jnp.asarray(x), jnp.asarray(y))
    theta, back = tree.ravel(chain)
    numeric = jacobian(lambda v: squares(back(v)(jnp.asarray(x)), jnp.asarray(y)), theta)
    got = np.asarray(tree.ravel(result.gradient)[0])
    forwards = jax.vmap(
        lambda e: jax.jvp(
            lambda v: squares(back(v)(jnp.asarray(x)), jnp.asarray(y)), (theta,), (e,)
        )[1]
    )
    ws, thin = without_biases(rng, (1, 1, 1, 1))
    at = rng.normal(size=1)
    goal = rng.normal(size=1)
    w = [W.item() for W in ws]
    a = [np.tanh(w[0] * at[0]), 0.0]
    a[1] = np.tanh(w[1] * a[0])
    error = w[2] * a[1] - goal[0]
    hand = [
        error * w[2] * (1 - a[1] ** 2) * w[1] * (1 - a[0] ** 2) * at[0],
        error * w[2] * (1 - a[1] ** 2) * a[0],
        error * a[1],
    ]
    narrow = tree.ravel(
        train.backpropagate(thin, squares, jnp.asarray(at), jnp.asarray(goal)).gradient
    )[0]
    return Verdict(
        close_derivative(f"all {len(got)} derivatives, ℓ = 0 to 3", got, numeric),
        close(
            "against forward mode, one direction at a time",
            got,
            forwards(jnp.eye(len(theta))),
            tolerance=1e-13,
        ),
        close("against the complex step in NumPy", got, _complex(Ws, x, y), tolerance=1e-13),
        close("one unit a layer: the products by hand", narrow, hand, tolerance=1e-14),
        close_derivative(
            "p_0, the gradient with respect to the input",
            result.deltas[0],
            jacobian(lambda x: squares(chain(x), jnp.asarray(y)), x),
        ),
    )


def _complex(Ws, x, y):
    r"""$\mathrm{Im}\, L(\theta + ihe) / h$ for each weight, without any derivative."""

    def loss(Ws):
        h = x
        for W in Ws[:-1]:
            h = np.tanh(W @ h)
        return np.sum((Ws[-1] @ h - y) ** 2) / 2

    results = []
    for ell, W in enumerate(Ws):
        for place in np.ndindex(W.shape):
            perturbed = [V.astype(complex) for V in Ws]
            perturbed[ell][place] += 1e-30j
            results.append(np.imag(loss(perturbed)) / 1e-30)
    return np.array(results)


@erratum(
    "L10-3.12-backprop",
    title="The loop must reach layer 0",
    printed=r"\ell = L, \dots, 1:\ \nabla_{W_\ell}\hat R = [\partial g_\ell / \partial "
    r"W_\ell]^\top p_{\ell+1}",
    corrected=r"\ell = L, \dots, 0:\ \nabla_{W_\ell}\hat R = [\partial g_\ell / \partial "
    r"W_\ell]^\top p_{\ell+1}",
    of=("train.backpropagate",),
    slip=True,
)
def backprop_printed(rng):
    r"""The loop is printed for $\ell = L, \dots, 1$, in two places, and never computes the gradient
    of $W_0$; those of $\ell = 0, \dots, L$ are returned. It must go on to 0.
    """
    Ws, chain = without_biases(rng)
    x = jnp.asarray(rng.normal(size=3))
    y = jnp.asarray(rng.normal(size=2))
    right, short = (printed_loop(chain, x, y, first=first) for first in (0, 1))
    theta, back = tree.ravel(chain)
    numeric = jacobian(lambda v: squares(back(v)(x), y), theta)
    reached = lambda result: equal(
        "layers whose gradient is computed", str(sorted(result)), str(list(range(4)))
    )
    flat = lambda result: np.concatenate(
        [result.get(ell, np.zeros(Ws[ell].size)) for ell in range(4)]
    )
    result = backward(chain, x, y).gradient
    return Verdict(
        reached(right),
        close_derivative("the gradients down to ℓ = 0", flat(right), numeric),
        close_derivative("the gradients by the library", tree.ravel(result)[0], numeric),
        printed=[
            reached(short),
            close_derivative(
                "the gradients down to ℓ = 1, the rest left at 0", flat(short), numeric
            ),
        ],
    )


@claim(
    "L10-3.12-costate",
    title="Co-states are Lagrange multipliers",
    kind="theorem",
    of=("train.backpropagate",),
    cites="LeCun 1988; Pontryagin et al. 1962",
)
def costate(rng):
    r"""In $L(x_{L+1}) + \sum_\ell p_{\ell+1}^\top (g_\ell(x_\ell, W_\ell) - x_{\ell+1})$ all
    $x_\ell$ are free. Stationarity in them is the backward recursion, so the $\delta_\ell$ of
    backpropagation are the multipliers $p_\ell$; the derivative with respect to $W_\ell$ is the
    gradient. With $H_\ell = p_{\ell+1}^\top g_\ell(x_\ell, W_\ell)$ this reads
    $p_\ell = \nabla_x H_\ell$, Pontryagin's recursion.
    """
    _, chain = without_biases(rng)
    x = rng.normal(size=3)
    y = jnp.asarray(rng.normal(size=2))
    results = backward(chain, jnp.asarray(x), y)
    cuts = np.cumsum([len(h) for h in results.activations[1:]])[:-1]
    step = lambda ell, h: apply(chain.layers[ell], h)

    def lagrangian(flat, chain, p):
        h = [jnp.asarray(x), *jnp.split(flat, cuts)]
        lack = [
            p[ell + 1] @ (apply(layer, h[ell]) - h[ell + 1])
            for ell, layer in enumerate(chain.layers)
        ]
        return squares(h[-1], y) + sum(lack)

    states = jnp.concatenate(results.activations[1:])
    stationary = lambda p: jacobian(lambda flat: lagrangian(flat, chain, p), states)
    theta, back = tree.ravel(chain)
    by_weights = jacobian(lambda v: lagrangian(states, back(v), results.deltas), theta)
    flipped = [-p for p in results.deltas]
    zero = {"tolerance": 1e-10, "method": "finite differences"}
    hamiltonian = [
        jacobian(
            lambda h, ell=ell: results.deltas[ell + 1] @ step(ell, h), results.activations[ell]
        )
        for ell in range(4)
    ]
    exact = jax.grad(lambda flat: lagrangian(flat, chain, results.deltas))(states)
    return Verdict(
        close(
            "derivative by every x_ℓ, ℓ = 1 to 4",
            stationary(results.deltas),
            np.zeros(len(states)),
            **zero,
        ),
        close(
            "the same by automatic differentiation", exact, np.zeros(len(states)), tolerance=1e-14
        ),
        close_derivative(
            "derivative by every W_ℓ, against backpropagation",
            by_weights,
            tree.ravel(results.gradient)[0],
            tolerance=1e-10,
        ),
        *[
            close(f"p_{ell} and ∇H_{ell}", results.deltas[ell], slope, **zero)
            for ell, slope in enumerate(hamiltonian)
        ],
        refuted(
            close(
                "derivative by x with the other sign of p",
                stationary(flipped),
                np.zeros(len(states)),
                **zero,
            )
        ),
    )
