"""Lecture 10, §3.13: forward and reverse mode, their cost, and the computational graph."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import explain, layers, models, train, tree
from ....plot import Panel
from ...engine.check import at_least, at_most, between, close, close_derivative, equal, refuted
from ...engine.claim import Verdict, claim, erratum
from ...engine.differences import jacobian
from .tape import Dual, Node, random_graph

A = np.array([[1.2, -0.7], [0.4, 0.9], [-1.1, 0.3]])
B = np.array([[0.8, -0.5, 1.3], [0.2, 1.1, -0.6]])


def two_layers(x, y, number):
    r"""$\sin(B \tanh(A(x, y)))$, $\mathbb{R}^2 \to \mathbb{R}^2$, for any number type with
    addition, multiplication, sin and tanh.
    """
    scale = lambda c, v: number(c) * v
    hidden = [(scale(a, x) + scale(b, y)).tanh() for a, b in A.tolist()]
    return [
        (scale(c[0], hidden[0]) + scale(c[1], hidden[1]) + scale(c[2], hidden[2])).sin()
        for c in B.tolist()
    ]


def by_layers():
    """The same function as a chain of the library's layers."""
    return layers.Chain(
        layers.Linear(jnp.asarray(A)), layers.tanh, layers.Linear(jnp.asarray(B)), jnp.sin
    )


@claim(
    "L10-3.13-ad-modes",
    title="Forward and reverse mode",
    kind="algorithm",
    of=("train.backpropagate", "explain.derivative_cost"),
    cites="Griewank & Walther 2008",
)
def ad_modes(key, rng):
    r"""Forward mode computes $Jv$, one pass for each input; reverse mode computes $J^\top u$, one
    pass for each output; and $u^\top (Jv) = (J^\top u)^\top v$. The whole of $J$ for
    $\mathbb{R}^n \to \mathbb{R}^m$ takes $n$ or $m$ passes.
    """
    x = rng.normal(size=2)
    chain = by_layers()
    numeric = jacobian(chain, x)
    duals = np.array(
        [
            [out.dot for out in two_layers(Dual(x[0], e[0]), Dual(x[1], e[1]), Dual)]
            for e in np.eye(2)
        ]
    ).T
    loss = lambda row: lambda prediction, y: prediction[row]
    back = [
        train.backpropagate(chain, loss(row), jnp.asarray(x), jnp.zeros(())).deltas[0]
        for row in range(2)
    ]
    u = rng.normal(size=2)
    v = rng.normal(size=2)
    pushed = np.asarray(jax.jvp(chain, (jnp.asarray(x),), (jnp.asarray(v),))[1])
    dot = lambda prediction, y: prediction @ y
    pulled = np.asarray(train.backpropagate(chain, dot, jnp.asarray(x), jnp.asarray(u)).deltas[0])
    shapes = [(7, 3), (3, 7), (12, 1), (1, 12)]
    costs = [
        explain.derivative_cost(
            models.MLP.init(n, 5, m, activation=layers.tanh, key=key), jnp.ones(n)
        )
        for n, m in shapes
    ]
    forwards, backwards = _whole_jacobians(costs)
    counts, difference = _passes(7, 3, key)
    return Verdict(
        close_derivative("dual numbers, against differences", duals, numeric, tolerance=1e-9),
        close(
            "the tape, against dual numbers",
            [_taped(x, row) for row in range(2)],
            duals,
            tolerance=1e-14,
        ),
        close("the library's reverse mode", back, duals, tolerance=1e-14),
        close("u·(Jv) and (Jᵀu)·v", u @ pushed, pulled @ v, tolerance=1e-14),
        refuted(close("u·(Jv) and (Ju)·v", u @ pushed, (duals @ u) @ v, tolerance=1e-3)),
        equal("forward-mode passes for all of J: the inputs", forwards, [n for n, _ in shapes]),
        equal("reverse-mode passes: the outputs", backwards, [m for _, m in shapes]),
        equal(
            "products of a forward-mode pass, over those of the value",
            [_products(c.forward, c) for c in costs],
            [2] * 4,
        ),
        equal("of a reverse-mode pass", [_products(c.reverse, c) for c in costs], [2] * 4),
        equal("counted passes for 7 inputs and 3 outputs", counts, [7, 3]),
        close("the two Jacobians", difference, 0.0, tolerance=1e-14),
        at_most("3 inputs, 7 outputs: forward over reverse mode", _ratio(costs[1]), 1),
        at_least("7 inputs, 3 outputs", _ratio(costs[0]), 1),
    )


def _taped(x, row):
    """A row of the Jacobian, by the tape."""
    one = Node(x[0])
    two = Node(x[1])
    two_layers(one, two, Node)[row].backward()
    return [one.grad, two.grad]


def _whole_jacobians(costs):
    """The cost of the whole Jacobian, in passes of either mode."""
    forwards = [result.jacobian_flops["forward mode"] / result.forward.flops for result in costs]
    return forwards, [
        result.jacobian_flops["reverse mode"] / result.reverse.flops for result in costs
    ]


def _ratio(cost):
    return cost.jacobian_flops["forward mode"] / cost.jacobian_flops["reverse mode"]


def _products(one, cost):
    return one.matmul_flops / cost.value.matmul_flops


def _passes(n, m, key):
    """How many forward-mode and reverse-mode passes the whole Jacobian takes, and the difference of
    the two results.
    """
    W = jr.normal(key, (m, n))
    counts = [0, 0]

    @jax.custom_vjp
    def f(x):
        return jnp.sin(W @ x)

    def back(x, u):
        counts[1] += 1
        return (W.T @ (jnp.cos(W @ x) * u),)

    f.defvjp(lambda x: (jnp.sin(W @ x), x), back)

    @jax.custom_jvp
    def g(x):
        return jnp.sin(W @ x)

    @g.defjvp
    def _(primals, tangents):
        counts[0] += 1
        return g(*primals), jnp.cos(W @ primals[0]) * (W @ tangents[0])

    x = jnp.ones(n)
    columns = np.stack([jax.jvp(g, (x,), (unit,))[1] for unit in jnp.eye(n)], axis=1)
    rows = np.stack([jax.vjp(f, x)[1](unit)[0] for unit in jnp.eye(m)])
    return counts, np.abs(columns - rows).max()


def network(*sizes, batch=8, runs=0):
    """The cost of the cross-entropy of a network of these widths."""
    key = jax.eval_shape(lambda: jr.key(0))
    net = jax.eval_shape(partial(models.MLP.init, *sizes), key=key)
    ready = lambda shape: jnp.zeros(shape.shape, shape.dtype)
    data = jnp.zeros((batch, sizes[0])), jnp.zeros(batch, int)
    return explain.derivative_cost(train.cross_entropy, jax.tree.map(ready, net), data, n_runs=runs)


def dense_flops(*sizes):
    r"""Forward pass: $2 d_i d_o$ for each layer; backward pass: the same for the weights, and for
    the inputs of all layers but the first.
    """
    pairs = list(pairwise(sizes))
    forth = sum(2 * n * m for n, m in pairs)
    return forth, sum(2 * n * m for n, m in pairs) + sum(2 * n * m for n, m in pairs[1:])


def backward_over_forward(cost):
    """The ratio of backward to forward FLOPs in matrix products."""
    return (cost.reverse.matmul_flops - cost.value.matmul_flops) / cost.value.matmul_flops


DEPTHS = [
    (784, 256, 128, 10),
    (10, 10),
    (10, 200, 10),
    (10, *[50] * 10, 10),
    (300, 20, 300),
    (2, *[64] * 30, 2),
]


@claim(
    "L10-3.13-cost",
    title="The cost of a gradient",
    kind="identity",
    of=("explain.derivative_cost", "explain.count_flops"),
    cites="Baur & Strassen 1983; Griewank & Walther 2008",
)
def price(key):
    r"""The gradient of a loss by reverse mode costs a small multiple of the loss, however many
    parameters there are: a dense layer takes $2 d_i d_o$ operations forward and $4 d_i d_o$
    backward, minus those for the gradient of the first input. So the backward pass of
    784-256-128-10 costs 1.145 times the forward pass, and never twice. Finite differences take
    $p + 1$ evaluations.
    """
    results = [network(*DEPTHS[0], runs=30), *(network(*sizes) for sizes in DEPTHS[1:])]
    forth, back = np.array([dense_flops(*sizes) for sizes in DEPTHS]).T
    small = models.MLP.init(3, 4, 2, key=key)
    batch = jnp.ones((5, 3)), jnp.zeros(5, int)
    p, (calls, off) = tree.size(small), _difference_calls(small, batch)
    cost_of_small = explain.derivative_cost(train.cross_entropy, small, batch)
    once = sum(_work(small, batch).values())
    large = models.MLP.init(40, 200, 10, key=key)
    many = (jnp.ones((8, 40)), jnp.zeros(8, int))
    program = (
        jax.jit(jax.value_and_grad(train.cross_entropy))
        .lower(large, many)
        .compile()
        .cost_analysis()
        or {}
    )
    counted = explain.derivative_cost(train.cross_entropy, large, many).reverse.flops
    ratios = [backward_over_forward(c) for c in results]
    return Verdict(
        equal(
            "forward pass, six networks, batches of 8",
            [c.value.matmul_flops for c in results],
            8 * forth,
        ),
        equal(
            "backward pass",
            [c.reverse.matmul_flops - c.value.matmul_flops for c in results],
            8 * back,
        ),
        close("784-256-128-10: backward over forward", ratios[0], 1.145, tolerance=5e-4),
        at_most("backward over forward, all six", ratios, 2.0),
        at_most("the same with all operations counted", [c.ratio for c in results[:4]], 3.0),
        between(
            "the count for 40-200-10 over that of XLA",
            counted / program["flops"],
            0.95,
            1.05,
            method="closed form",
        ),
        equal("evaluations for finite differences", calls, p + 1),
        close_derivative("and their error", off, 0.0, tolerance=1e-5),
        equal("and their operations", cost_of_small.jacobian_flops["differences"], (p + 1) * once),
        figure=results[0],
    )


def _difference_calls(net, batch):
    """The number of loss evaluations for the gradient by forward differences, and the largest
    error.
    """
    theta, back = tree.ravel(net)
    count = 0

    def loss(theta):
        nonlocal count
        count += 1
        return float(_loss(back(theta), batch))

    base = loss(theta)
    step = 1e-6
    slopes = [(loss(theta + step * unit) - base) / step for unit in np.eye(len(theta))]
    return count, np.abs(
        np.array(slopes) - tree.ravel(jax.grad(train.cross_entropy)(net, batch))[0]
    ).max()


def _work(net, batch):
    return explain.count_flops(train.cross_entropy, net, batch)


_loss = jax.jit(lambda net, batch: train.cross_entropy(net, batch))


@erratum(
    "L10-3.13-cost",
    title="The ratio is independent of the number of parameters, not the cost",
    printed=r"\mathrm{cost}(\nabla_\theta \hat R)\ \mathrm{independent\ of}\ p",
    corrected=r"\mathrm{cost}(\nabla_\theta \hat R) \le 3\, \mathrm{cost}(\hat R),\ \mathrm{for\ "
    r"every}\ p",
    of=("explain.derivative_cost",),
    slip=True,
)
def price_printed(key):
    r"""The cost is printed as independent of the number of parameters. It grows with $p$ just as
    the loss itself does; their ratio does not grow, as the bracket after it says: "approximately
    1-2 forward passes".
    """
    widths = np.array([16, 64, 256])
    results = [network(20, int(m), int(m), 5) for m in widths]
    same = lambda name, values: at_most(
        f"{name}: largest over smallest, widths 16 to 256", max(values) / min(values), 2.0
    )
    return Verdict(
        same("gradient over loss", [c.reverse.flops / c.value.flops for c in results]),
        at_most("gradient over loss", [c.reverse.flops / c.value.flops for c in results], 3.0),
        same(
            "operations of the gradient per parameter",
            [c.reverse.flops / c.n_inputs for c in results],
        ),
        printed=[same("operations of the gradient", [c.reverse.flops for c in results])],
        figure=Panel(
            "parameters",
            "operations",
            log="xy",
            points={
                "loss": ([c.n_inputs for c in results], [c.value.flops for c in results]),
                "loss and gradient": (
                    [c.n_inputs for c in results],
                    [c.reverse.flops for c in results],
                ),
            },
        ),
    )


@claim(
    "L10-3.13-graph",
    title="The computational graph",
    kind="algorithm",
    of=("train.backpropagate", "layers.Residual", "train.descend"),
)
def graph(key, rng):
    r"""The graph is built as the value is computed, and traversed backwards in reverse topological
    order: the contributions of several paths add up. So $y = x \cdot x + x$ has slope $2x + 1$, and
    a second backward pass adds to the first.
    """
    x = rng.normal()
    leaf = Node(x)
    y = leaf * leaf + leaf
    visited = y.backward()
    once = leaf.grad
    y.backward()
    diamond = layers.Chain(layers.Residual(layers.Pointwise(jnp.square)))
    result = train.backpropagate(diamond, lambda f, y: f[0], jnp.array([x]), jnp.zeros(()))
    recipe = [
        (rng.choice(["add", "times", "sin", "tanh"]), *rng.integers(0, 4 + k, size=2))
        for k in range(25)
    ]
    plain = {"add": lambda a, b: a + b, "times": lambda a, b: a * b}
    own = plain | {"sin": lambda a, b: a.sin(), "tanh": lambda a, b: a.tanh()}
    with_jax = plain | {"sin": lambda a, b: jnp.sin(a), "tanh": lambda a, b: jnp.tanh(a)}
    begin = rng.uniform(-1, 1, size=4)
    nodes = [Node(v) for v in begin]
    random_graph(recipe, nodes, how=own).backward()
    value = lambda t: random_graph(recipe, list(t), how=with_jax)
    by_jax = np.asarray(jax.grad(value)(jnp.asarray(begin)))
    numeric = jacobian(value, begin)
    taped = np.array([node.grad for node in nodes])
    halves = layers.Linear(jnp.asarray(rng.normal(size=(1, 3))))
    data = jnp.asarray(rng.normal(size=(6, 3))), jnp.asarray(rng.normal(size=6))
    updated = [_after(halves, data, parts, key) for parts in (1, 2, 3)]
    return Verdict(
        close("y = x·x + x: its slope by the tape", once, 2 * x + 1, tolerance=1e-15),
        close(
            "by the library, through a residual block",
            result.deltas[0][0],
            2 * x + 1,
            tolerance=1e-15,
        ),
        equal("nodes visited, each once: x, x·x, y", visited, 3),
        close(
            "a second backward pass: twice the slope", leaf.grad, 2 * (2 * x + 1), tolerance=1e-14
        ),
        close_derivative(
            "a random graph of 25 steps: the tape, against differences",
            taped,
            numeric,
            tolerance=1e-7,
            relative=True,
        ),
        close("and against JAX's reverse mode", taped, by_jax, relative=True),
        refuted(close("one of two paths left out", 2 * x, result.deltas[0][0], tolerance=1e-3)),
        close(
            "a batch in 2 and in 3 parts: their gradients accumulate",
            np.stack(updated[1:]),
            np.stack([updated[0]] * 2),
            tolerance=1e-14,
        ),
        assumptions=[
            between("largest slope of the random graph", np.abs(numeric).max(), 1e-9, 1e6)
        ],
    )


def _after(model, data, parts, key):
    step = train.descend(train.squared_error, optax.sgd(0.1), accumulate=parts)
    return np.asarray(step.step(step.init(model), data, key=key)[0].model.W)[0]
