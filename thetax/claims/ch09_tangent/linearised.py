r"""§9.1: the linearised network, its features $\nabla f[\theta_0](x)$ and their kernel."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import tree
from ...core import predict
from ...explain import Linearised, linearise, ntk, ntk_operator
from ...layers import Linear, tanh
from ...models import MLP
from ...plot import Chart, Panel
from ...train import squared_error
from ..engine.check import at_least, at_most, between, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian


def network(*sizes: int, key: Any) -> MLP:
    """A smooth network, with biases that are not 0."""
    net = MLP.init(*sizes, activation=tanh, key=key)
    return tree.axpy(0.2, tree.normal_like(jr.fold_in(key, 1), net), net)


def outputs(model: Any, xs: Any) -> Any:
    r"""$\theta$ as a vector, and the outputs at the examples as a function of it."""
    theta, unravel = tree.ravel(model)
    return theta, lambda theta: predict(unravel(theta), jnp.asarray(xs))


def features(model: Any, xs: Any) -> np.ndarray:
    r"""$\nabla f[\theta_0](x_i)$ of a model with one output, a row each, by differences of its
    outputs.
    """
    theta, f = outputs(model, xs)
    return jacobian(lambda theta: f(theta)[:, 0], theta)


def linearised_at(h: Linearised, beta: Any) -> Linearised:
    r"""The Taylor model at a vector $\beta$."""
    return Linearised(tree.ravel(h.beta)[1](jnp.asarray(beta)), h.origin)


@claim(
    "9.1-linearise",
    title="The linearisation of a network",
    kind="definition",
    of=("explain.linearise",),
    cites="Jacot et al. 2018; Lee et al. 2019",
)
def taylor(key, rng):
    r"""$f[\theta](x) \approx f[\theta_0](x) + \langle \nabla_\theta f[\theta_0](x), \theta -
    \theta_0 \rangle$: affine in $\theta$, with an error of second order, and not linear in $x$. A
    model that is linear in $\theta$ is its own linearisation.
    """
    net = network(4, 10, 12, 1, key=key)
    xs = rng.normal(size=(8, 4))
    v = rng.normal(size=tree.size(net))
    v = v / np.linalg.norm(v)
    sizes = np.geomspace(1e-1, 1e-3, 9)
    h = linearise(net)
    theta, f = outputs(net, xs)
    along = lambda g, ts: np.asarray(jax.vmap(lambda t: g(t * jnp.asarray(v)))(jnp.asarray(ts)))[
        :, :, 0
    ]
    true = lambda b: f(theta + b)
    tangent = lambda b: predict(linearised_at(h, b), jnp.asarray(xs))
    errors = np.abs(along(true, sizes) - along(tangent, sizes)).max(axis=1)
    at_first = np.asarray(f(theta))[:, 0]
    flat = np.abs(along(true, sizes) - at_first).max(axis=1)
    order = lambda errors: np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    line = Linear.init(4, 3, key=key)
    step = rng.normal(size=15)
    displaced = linearised_at(h, 0.3 * v)
    ends = np.asarray(
        predict(displaced, jnp.asarray(np.stack([xs[0], xs[1], (xs[0] + xs[1]) / 2])))
    )[:, 0]
    ts = np.linspace(-3, 3, 61)
    return Verdict(
        between("order of the error, steps 0.1 … 0.001", order(errors), 1.95, 2.05),
        refuted(between("order of the error without the gradient term", order(flat), 1.95, 2.05)),
        close_derivative(
            "the derivative, against finite differences",
            along(tangent, [1.0])[0] - at_first,
            features(net, xs) @ v,
        ),
        close(
            "a linear layer: its linearisation",
            predict(linearised_at(linearise(line), step), jnp.asarray(xs)),
            outputs(line, xs)[1](tree.ravel(line)[0] + step),
        ),
        refuted(
            close("linear in x: the midpoint", ends[2], (ends[0] + ends[1]) / 2, tolerance=1e-3)
        ),
        assumptions=[equal("parameters", tree.size(net), 195)],
        figure=Chart(
            Panel(
                "step along a direction of θ",
                "output at three inputs",
                title="networks and their linearisations",
                lines={name: (ts, value) for name, value in zip("123", along(true, ts).T)},
                bounds={"": (ts, along(tangent, ts)[:, :3])},
            ),
            Panel(
                "size of the step",
                "largest error",
                log="xy",
                points={"f − h": (sizes, errors)},
                bounds={"slope 2": (sizes, errors[0] * (sizes / sizes[0]) ** 2)},
            ),
        ),
    )


@claim(
    "9.1-linear-model",
    title="A linear model on gradient features",
    kind="model",
    of=("explain.linearise", "explain.Linearised"),
)
def linear(key, rng):
    r"""$h[\beta](x) = f[\theta_0](x) + \beta^\top \nabla f[\theta_0](x)$ with
    $\beta = \theta - \theta_0 \in \mathbb{R}^p$: the changes of the output add up, and the gradient
    by $\beta$ is the feature vector at every $\beta$.
    """
    net = network(3, 5, 1, key=key)
    xs, (a, b) = jnp.asarray(rng.normal(size=(6, 3))), rng.normal(size=(2, tree.size(net)))
    h = linearise(net)
    phi = features(net, xs)
    change = lambda beta: np.asarray(predict(linearised_at(h, beta), xs) - predict(net, xs))[:, 0]
    theta, f = outputs(net, xs)
    true = lambda beta: np.asarray(f(theta + beta) - f(theta))[:, 0]
    slope = lambda beta: np.asarray(
        jax.jacrev(lambda beta: predict(linearised_at(h, beta), xs)[:, 0])(jnp.asarray(beta))
    )
    return Verdict(
        equal("β = 0: the network", predict(h, xs)[:, 0], predict(net, xs)[:, 0]),
        equal("size of β", tree.size(h), tree.size(net)),
        close("β + β': the changes add up", change(a + 2 * b), change(a) + 2 * change(b)),
        refuted(
            close(
                "the changes of the network add up",
                true(a + 2 * b),
                true(a) + 2 * true(b),
                tolerance=1e-3,
            )
        ),
        close_derivative("βᵀ∇f, against differences of f", change(a), phi @ a),
        close_derivative("gradient by β, at 0", slope(0 * a), phi),
        close_derivative("gradient by β, at another β", slope(a), phi),
    )


def layer_by_layer(net: MLP, xs: np.ndarray) -> np.ndarray:
    r"""The kernel of $W_2 \tanh(W_1 x + b_1) + b_2$ by hand, as a sum over layers of
    $\langle \delta, \delta' \rangle (\langle h, h' \rangle + 1)$."""
    first = net.body.layers[0]
    last = net.body.layers[-1]
    hidden = np.tanh(xs @ np.asarray(first.W).T + np.asarray(first.b))
    delta = np.asarray(last.W) * (1 - hidden**2)
    return hidden @ hidden.T + 1 + (delta @ delta.T) * (xs @ xs.T + 1)


@claim(
    "9.1-tangent-kernel",
    title="The tangent kernel",
    kind="definition",
    of=("explain.ntk", "explain.ntk_operator"),
    cites="Jacot et al. 2018",
)
def kernel(key, rng):
    r"""$k(x, x') = \nabla f[\theta_0](x)^\top \nabla f[\theta_0](x')$, of any model: symmetric,
    positive semi-definite, and of rank at most $p$ on any number of examples. A model with several
    outputs has one kernel for each pair of outputs.
    """
    xs = rng.normal(size=(20, 3))
    net, two, small = (network(*sizes, key=key) for sizes in ((3, 6, 1), (3, 5, 2), (3, 2, 1)))
    X = jnp.asarray(xs)
    K = np.asarray(ntk(net)(X))[:, :, 0, 0]
    phi = features(net, xs)
    by_loop = np.array([[sum(a * b for a, b in zip(one, other)) for other in phi] for one in phi])
    by_products = np.stack(
        [np.asarray(ntk_operator(net, X, batch_size=7)(e))[:, 0] for e in jnp.eye(20)[:, :, None]]
    )
    theta, f = outputs(two, xs[:4])
    J = jacobian(f, theta)
    few = np.asarray(ntk(small, form="trace")(X))
    return Verdict(
        close_derivative(
            "20 inputs, gradients by finite differences, multiplied pair by pair", K, by_loop
        ),
        close("layer by layer, by hand", K, layer_by_layer(net, xs), tolerance=1e-10),
        close("by a VJP and a JVP", by_products, K, tolerance=1e-10),
        close(
            "between two sets of inputs",
            ntk(net)(X[:6], X[6:])[:, :, 0, 0],
            K[:6, 6:],
            tolerance=1e-10,
        ),
        close("the diagonal only", ntk(net).diagonal(X)[:, 0, 0], np.diag(K), tolerance=1e-10),
        close_derivative(
            "two outputs: a block for each pair of examples",
            ntk(two)(X[:4]),
            np.einsum("nop,mqp->nmoq", J, J),
        ),
        close_derivative(
            "two outputs: its trace", ntk(two, form="trace")(X[:4]), np.einsum("nop,mop->nm", J, J)
        ),
        equal("symmetric", K, K.T),
        at_least("smallest eigenvalue", np.linalg.eigvalsh((K + K.T) / 2).min(), -1e-10),
        at_most(
            f"rank on 20 inputs, of {tree.size(small)} parameters",
            np.linalg.matrix_rank(few),
            tree.size(small),
        ),
        figure=_kernel_slices(key),
    )


def _kernel_slices(key: Any) -> Chart:
    """The effect of a step for one input on the outputs at others, for two networks on a line."""
    t = jnp.linspace(-3, 3, 121)[:, None]
    places = jnp.array([[-1.5], [0.5]])
    panel = lambda name, net: Panel(
        "x",
        "k(x, x')",
        title=name,
        lines={
            f"x' = {float(x[0]):g}": (t[:, 0], k)
            for x, k in zip(places, ntk(net, form="trace")(places, t))
        },
    )
    return Chart(*(panel(f"width {m}", network(1, m, 1, key=key)) for m in (4, 256)))


def design(
    net: Any, xs: np.ndarray, ys: np.ndarray, beta: np.ndarray, phi: np.ndarray
) -> list[Any]:
    r"""Checks of a matrix $\Phi$: its shape, and, if it fits, the resulting loss and gradient."""
    n = len(xs)
    p = len(beta)
    h = linearise(net)
    batch = (jnp.asarray(xs), jnp.asarray(ys))
    loss = lambda beta: n * squared_error(linearised_at(h, beta), batch)
    value, slope = jax.value_and_grad(loss)(jnp.asarray(beta))
    checks = [equal("shape of Φ: n examples by p parameters", phi.shape, (n, p))]
    if phi.shape == (n, p):
        off = np.asarray(predict(net, batch[0]))[:, 0] + phi @ beta - ys
        checks += [
            close("½‖f + Φβ − y‖²", value, off @ off / 2, tolerance=1e-8, relative=True),
            close("its gradient Φᵀ(f + Φβ − y)", slope, phi.T @ off, tolerance=1e-8, relative=True),
        ]
    return checks


@claim(
    "9.1-mse-design",
    title="Least squares on gradient features",
    kind="definition",
    of=("explain.linearise", "train.squared_error"),
)
def squares(key, rng):
    r"""$\ell(\beta) = \frac12 \|f + \Phi\beta - y\|^2$ with the rows $\nabla f[\theta_0](x_i)^\top$
    of $\Phi \in \mathbb{R}^{n \times p}$; its gradient is $\Phi^\top (f + \Phi\beta - y)$.
    """
    net = network(3, 4, 1, key=key)
    xs = rng.normal(size=(6, 3))
    ys = rng.normal(size=6)
    beta = rng.normal(size=tree.size(net))
    h = linearise(net)
    batch = (jnp.asarray(xs), jnp.asarray(ys))
    loss = lambda beta: 6 * squared_error(linearised_at(h, beta), batch)
    return Verdict(
        *design(net, xs, ys, beta, features(net, xs)),
        close_derivative(
            "gradient, against differences",
            jax.grad(loss)(jnp.asarray(beta)),
            jacobian(loss, beta),
            relative=True,
        ),
        assumed=("The notes sum over the examples; the library's squared error is the mean.",),
    )


@erratum(
    "9.1-mse-design",
    title="Gradients are rows",
    printed=r"\Phi = [\nabla f[\theta_0](x_1), \dots, \nabla f[\theta_0](x_n)]",
    corrected=r"\Phi = [\nabla f[\theta_0](x_1), \dots, \nabla f[\theta_0](x_n)]^\top",
    of=("explain.linearise", "train.squared_error"),
    slip=True,
)
def squares_printed(key, rng):
    r"""A transpose is missing: gradients as columns form a $p \times n$ matrix, and $\Phi$ is said
    to be in $\mathbb{R}^{n \times p}$, which all that follows uses. Where $p = n$ both fit, and the
    printed one gives a different loss.
    """
    net = network(1, 2, 1, key=key)
    p = tree.size(net)
    xs = rng.normal(size=(p, 1))
    ys = rng.normal(size=p)
    beta = rng.normal(size=p)
    phi = features(net, xs)
    few = lambda transposed: design(net, xs[:4], ys[:4], beta, phi[:4].T if transposed else phi[:4])
    return Verdict(
        *few(False),
        *design(net, xs, ys, beta, phi)[1:],
        printed=[*few(True), *design(net, xs, ys, beta, phi.T)[1:]],
    )
