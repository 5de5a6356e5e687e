r"""§9.1: the cost of the kernel, and linearised networks against fully trained ones."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import tree
from ...core import predict, run
from ...explain import count_flops, linearise, ntk
from ...models import MLP
from ...plot import Panel
from ...train import descend, squared_error, weight_decay
from ..engine.check import at_most, close, equal
from ..engine.claim import Verdict, claim

RIDGES = np.geomspace(1e-4, 1e3, 8)


def pair_by_pair(phi: Any) -> Any:
    r"""$\nabla f(x_i)^\top \nabla f(x_j)$ for $j \le i$, pair by pair."""
    return jnp.stack([phi[i] @ phi[j] for i in range(len(phi)) for j in range(i + 1)])


@claim(
    "9.1-cost",
    title="The cost of the tangent kernel",
    kind="experiment",
    of=("explain.ntk", "explain.count_flops"),
    cites="Novak et al. 2022",
)
def cost(key, rng):
    r"""From the gradients, $K$ takes $\frac{n(n+1)}{2}\,p$ multiply-adds, and has $n^2$ entries.
    Computed layer by layer, the gradients need not be stored, and it takes far fewer.
    """
    nets = [MLP.init(3, m, 1, key=key) for m in (5, 10, 40)]
    sizes = np.array([2, 5, 10, 20])
    ps = np.array([tree.size(net) for net in nets])
    count = lambda n, p: count_flops(pair_by_pair, jnp.zeros((n, p))).get("dot_general", 0) // 2
    counted = np.array([[count(int(n), int(p)) for p in ps] for n in sizes])
    xs = jnp.asarray(rng.normal(size=(20, 3)))
    gram = [np.asarray(ntk(nets[0], form="trace")(xs[:n])) for n in sizes]
    deep = MLP.init(64, 256, 256, 1, key=key)
    phi = np.asarray(
        jax.vmap(lambda x: tree.ravel(jax.grad(lambda net: net(x)[0])(nets[0]))[0])(xs)
    )
    pairs = np.asarray(pair_by_pair(jnp.asarray(phi)))
    many = np.array([50, 100, 200, 400])
    plans = [
        ntk(deep, form="trace").plan(jax.ShapeDtypeStruct((int(n), 64), jnp.float64)) for n in many
    ]
    by_gradients = many * (many + 1) // 2 * tree.size(deep)
    ours = np.array([plan.multiplications for plan in plans])
    return Verdict(
        equal(
            "multiply-adds, n = 2 … 20, p = 26 … 201",
            counted,
            sizes[:, None] * (sizes[:, None] + 1) // 2 * ps,
        ),
        close(
            "their result, against the kernel",
            pairs,
            gram[-1][np.tril_indices(20)],
            tolerance=1e-10,
        ),
        equal("bytes of K", [K.nbytes for K in gram], 8 * sizes**2),
        at_most(
            f"layer by layer, of {tree.size(deep):,} parameters, n = 50 … 400: fraction of that",
            ours / by_gradients,
            0.05,
        ),
        figure=Panel(
            "examples n",
            "multiply-adds",
            log="xy",
            title=f"{tree.size(deep):,} parameters",
            lines={
                "gradients, pair by pair": (many, by_gradients),
                "layer by layer": (many, ours),
            },
        ),
    )


def signs(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    r"""$x \in \{\pm 1\}^{20}$ and $y = x_1 x_2$."""
    xs = rng.choice([-1.0, 1.0], size=(n, 20))
    return jnp.asarray(xs, jnp.float32), jnp.asarray(xs[:, 0] * xs[:, 1], jnp.float32)


def error_rate(predictions: Any, ys: Any) -> np.ndarray:
    """The share of wrong signs, along the last axis."""
    return np.mean(np.sign(np.asarray(predictions)) != np.asarray(ys), axis=-1)


@claim(
    "9.1-linearised-vs-full",
    title="A linearised network learns less",
    kind="experiment",
    of=("explain.linearise", "explain.ntk", "train.weight_decay"),
    cites="Lee et al. 2019; Wei et al. 2019",
)
def against_the_whole(key, rng):
    r"""A linearised network has the features of its initialisation; a trained one learns features.
    On $y = x_1 x_2$, $x \in \{\pm 1\}^{20}$, 400 examples, a ReLU network of width 200, trained
    with weight decay, makes fewer mistakes than its linearised form with the best ridge parameter,
    chosen on the test data.
    """
    seeds = 5
    train = signs(rng, 400)
    test = signs(rng, 2000)
    draw = lambda key: jax.tree.map(lambda a: a.astype(jnp.float32), MLP.init(20, 200, 1, key=key))
    nets = jax.vmap(draw)(jr.split(key, seeds))
    full, losses = _trained_outputs(nets, train, test[0])
    ridged = np.stack(
        [
            _ridge_outputs(jax.tree.map(lambda leaf, i=i: leaf[i], nets), train, test[0])
            for i in range(seeds)
        ]
    )
    first = jax.tree.map(lambda leaf: leaf[0], nets)
    h = linearise(first).solve(train[0], train[1][:, None], ridge=float(RIDGES[4]))
    errors = error_rate(full, test[1])
    each = error_rate(ridged, test[1])
    least = each.min(axis=1)
    few = RIDGES[:6]
    ends = each[:, :6].min(axis=0), each[:, :6].max(axis=0)
    return Verdict(
        at_most(
            "error rate of the network minus that of its linearised form, 5 draws",
            errors - least,
            -0.001,
        ),
        at_most("error rate of the network", errors, 0.01),
        close(
            "one of the linearised forms, by its β",
            predict(h, test[0])[:, 0],
            ridged[0, 4],
            tolerance=1e-3,
        ),
        assumptions=[at_most("loss of the trained networks", losses, 1e-2)],
        figure=Panel(
            "ridge",
            "error rate on new examples",
            log="x",
            bands={"linearised, range of 5 draws": (few, *ends)},
            lines={
                "linearised, mean": (few, each[:, :6].mean(axis=0)),
                "the network, trained": (few, np.full(6, errors.mean())),
            },
        ),
    )


@jax.jit
def _trained_outputs(nets: Any, train: Any, new: Any) -> tuple[Any, Any]:
    """The outputs of each trained network at new inputs, and its final loss."""
    objective = weight_decay(squared_error, strength=1e-3)
    step = descend(lambda model, _, key: objective(model, train), optax.adam(1e-2))

    def learn(net):
        model = run(step, net, jnp.zeros(400), key=jr.key(0))[0].model
        return predict(model, new)[:, 0], squared_error(model, train)

    return jax.vmap(learn)(nets)


def _ridge_outputs(net: Any, train: Any, new: Any) -> np.ndarray:
    """The outputs of the linearised network at new inputs, for each ridge parameter."""
    kernel, (xs, ys) = ntk(net, form="trace"), train
    f, there = (np.asarray(predict(net, inputs), float)[:, 0] for inputs in (xs, new))
    values, V = np.linalg.eigh(np.asarray(kernel(xs), float))
    k = np.asarray(kernel(new, xs), float) @ V
    r = V.T @ (np.asarray(ys) - f)
    return np.stack([there + k @ (r / (values + ridge)) for ridge in RIDGES])
