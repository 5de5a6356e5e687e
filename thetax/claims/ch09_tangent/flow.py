r"""§9.2: gradient descent with small steps is a gradient flow of the parameters and of the
outputs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.special import softmax

from ... import tree
from ...core import iterate, predict, run
from ...explain import kernel_gradient_descent, kernel_gradient_flow, linearise, ntk
from ...plot import Chart, Panel
from ...train import cross_entropy, descend, gradient_flow, log_loss, squared_error
from ..engine.check import at_most, between, close, close_derivative, refuted
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng
from .linearised import network

N = 5
STEP = 1e-3
MOMENTS = np.array([0.02, 0.1, 0.4])
ODE: dict[str, Any] = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-12}


def summed(model: Any, batch: Any, key: Any = None) -> Any:
    r"""$\frac12 \|f - y\|^2$, summed over the examples as in the notes."""
    return len(batch[1]) * squared_error(model, batch)


def classified(model: Any, batch: Any, key: Any = None) -> Any:
    """The cross-entropy, summed over the examples."""
    return len(batch[1]) * cross_entropy(model, batch)


class Case(NamedTuple):
    """A small network, five examples, and five other inputs."""

    net: Any
    xs: np.ndarray
    ys: np.ndarray
    new: np.ndarray

    @property
    def batch(self) -> tuple[Any, Any]:
        return jnp.asarray(self.xs), jnp.asarray(self.ys)


def small(key: Any) -> Case:
    """A network of six hidden units, training data, and new inputs."""
    rng = numpy_rng(key)
    return Case(
        network(3, 6, 1, key=key),
        rng.normal(size=(N, 3)),
        2 * rng.normal(size=N),
        rng.normal(size=(5, 3)),
    )


def by_hand(theta: np.ndarray, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""The outputs of $w^\top \tanh(W x + b) + c$ and their gradients, one row each, by NumPy."""
    W, b, w, c = np.split(theta, [18, 24, 30])
    h = np.tanh(xs @ W.reshape(6, 3).T + b)
    back = w * (1 - h**2)
    inner = (back[:, :, None] * xs[:, None]).reshape(len(xs), -1)
    return h @ w + c, np.concatenate([inner, back, h, np.ones((len(xs), 1))], axis=1)


def time_derivatives(values: np.ndarray) -> np.ndarray:
    """Derivatives at the moments, by the five-point rule, from values at the times around them."""
    around = values.reshape(len(MOMENTS), 5, *values.shape[1:])
    return np.tensordot(around, np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / (12 * STEP), axes=(1, 0))


def flow_around_moments(objective: Any, net: Any, batch: Any) -> Any:
    """The flow at five times around each of the moments."""
    times = (MOMENTS[:, None] + STEP * np.arange(-2, 3)).ravel()
    return gradient_flow(objective, net, batch, times=times, tolerance=1e-11)


def models_at_moments(flow: Any) -> list[Any]:
    """The models at the moments."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], flow.models) for i in range(2, 15, 5)]


@claim(
    "9.2-gradient-flow",
    title="Gradient flow",
    kind="definition",
    of=("train.gradient_flow", "train.descend", "train.squared_error"),
)
def limit(key):
    r"""Gradient descent $\theta_{t+1} = \theta_t - \eta \nabla \ell$ on
    $\ell = \frac12 \|f - y\|^2$ becomes, for small $\eta$, the flow
    $\dot\theta = -\nabla \ell(\theta) = \sum_i (y_i - f[\theta](x_i)) \nabla f[\theta](x_i)$: at a
    fixed time the two differ by $O(\eta)$.
    """
    case = small(key)
    end = 0.4
    theta = np.asarray(tree.ravel(case.net)[0])

    def velocity(t, theta):
        f, slopes = by_hand(theta, case.xs)
        return sum((y - value) * slope for y, value, slope in zip(case.ys, f, slopes))

    exact = solve_ivp(velocity, (0, end), theta, **ODE).y[:, -1]
    flat = lambda model: np.asarray(tree.ravel(model)[0])
    counts = np.array([200, 400, 800, 1600])
    ends = [flat(_descended(case, end / count, count)) for count in counts.tolist()]
    errors = np.array([np.linalg.norm(result - exact) for result in ends])
    result = gradient_flow(summed, case.net, case.batch, times=[end], tolerance=1e-10).model
    slow = gradient_flow(
        squared_error, case.net, case.batch, times=[N * end], tolerance=1e-10
    ).model
    return Verdict(
        close(
            "−∇ℓ, against the sum over examples",
            -flat(jax.grad(summed)(case.net, case.batch)),
            velocity(0, theta),
        ),
        close("the flow, against SciPy's", flat(result), exact, tolerance=1e-7),
        between(
            "order in η of the error of gradient descent",
            np.polyfit(np.log(end / counts), np.log(errors), 1)[0],
            0.9,
            1.1,
        ),
        close(
            "the mean over examples in place of the sum, n times slower",
            flat(slow),
            exact,
            tolerance=1e-7,
        ),
        figure=Panel(
            "learning rate η",
            f"distance to the flow at time {end:g}",
            log="xy",
            points={"gradient descent": (end / counts, errors)},
            bounds={"slope 1": (end / counts, errors[-1] * counts[-1] / counts)},
        ),
    )


def _descended(case: Case, learning_rate: float, steps: int) -> Any:
    step = lambda learning_rate: descend(
        lambda model, _, key: summed(model, case.batch), optax.sgd(learning_rate)
    )
    return jax.jit(lambda net, learning_rate: iterate(step(learning_rate), net, steps)[0].model)(
        case.net, learning_rate
    )


@claim(
    "9.2-loss-decay",
    title="How fast the loss decreases",
    kind="identity",
    of=("train.gradient_flow", "explain.ntk"),
)
def decay(key):
    r"""Along the flow $\dot\ell = -\|\nabla \ell\|^2 = -(y - f)^\top K[\theta_t] (y - f) \le 0$."""
    case = small(key)
    flow = flow_around_moments(summed, case.net, case.batch)
    speed = time_derivatives(np.asarray(flow.losses))
    off = []
    for model in models_at_moments(flow):
        residual = case.ys - np.asarray(predict(model, case.batch[0]))[:, 0]
        off.append(
            [
                residual @ np.asarray(ntk(net, form="trace")(case.batch[0])) @ residual
                for net in (model, case.net)
            ]
        )
    then, first = np.array(off).T
    path = gradient_flow(
        summed, case.net, case.batch, times=np.geomspace(1e-3, 3, 60), tolerance=1e-8
    )
    return Verdict(
        close_derivative(
            "dℓ/dt at three times: −‖∇ℓ‖²",
            speed,
            -(np.asarray(flow.gradient_norms)[2::5] ** 2),
            tolerance=1e-5,
            relative=True,
        ),
        close_derivative(
            "−(y − f)ᵀ K (y − f), K at that time", speed, -then, tolerance=1e-5, relative=True
        ),
        refuted(
            close_derivative("with the initial K", speed, -first, tolerance=1e-5, relative=True)
        ),
        at_most("increase of the loss", np.diff(np.asarray(path.losses)), 0.0, slack=1e-9),
        figure=Panel("time", "loss", log="xy", lines={"ℓ": (path.times, path.losses)}),
    )


@claim(
    "9.2-functional-flow",
    "9.2-flow-matrix",
    title="The kernel drives the outputs",
    kind="theorem",
    of=("train.gradient_flow", "explain.ntk"),
    cites="Jacot et al. 2018",
)
def functions(key):
    r"""Along the flow the output at any $x_j$, in training or new, changes by
    $\dot f_j = \sum_i (y_i - f_i)\, k[\theta_t](x_i, x_j)$; on the examples,
    $\dot f = K[\theta_t] (y - f)$. The parameters enter only through the kernel.
    """
    case = small(key)
    flow = flow_around_moments(summed, case.net, case.batch)
    everywhere = jnp.asarray(np.concatenate([case.xs, case.new]))
    f = np.asarray(jax.vmap(lambda model: predict(model, everywhere))(flow.models))[:, :, 0]
    speed = time_derivatives(f)
    residuals = case.ys - f[2::5, :N]
    nets = models_at_moments(flow)
    thetas = [np.asarray(tree.ravel(net)[0]) for net in nets]
    slopes = [by_hand(theta, np.asarray(everywhere))[1] for theta in thetas]
    by_sum = np.array(
        [
            [sum(r[i] * (J[i] @ J[j]) for i in range(N)) for j in range(10)]
            for r, J in zip(residuals, slopes)
        ]
    )
    grams = [
        np.asarray(ntk(net, form="trace")(everywhere, case.batch[0])) for net in (*nets, case.net)
    ]
    velocities = lambda grams: np.stack([K @ r for K, r in zip(grams, residuals)])
    long_flow = gradient_flow(
        summed, case.net, case.batch, times=np.linspace(0.005, 1, 60), tolerance=1e-8
    )
    path = np.asarray(jax.vmap(lambda model: predict(model, everywhere))(long_flow.models))[:, :, 0]
    panel = lambda name, part: Panel(
        "time",
        "output",
        title=name,
        lines={str(i + 1): (long_flow.times, values) for i, values in enumerate(part.T[:4])},
    )
    return Verdict(
        close_derivative(
            "5 examples and 5 new inputs at three times: the sum over examples",
            speed,
            by_sum,
            tolerance=1e-5,
            relative=True,
        ),
        close_derivative(
            "by the library's kernel", speed, velocities(grams[:3]), tolerance=1e-5, relative=True
        ),
        close_derivative(
            "in matrix form, on the examples",
            speed[:, :N],
            velocities([K[:N] for K in grams[:3]]),
            tolerance=1e-5,
            relative=True,
        ),
        refuted(
            close_derivative(
                "with the initial kernel",
                speed,
                velocities(grams[3:] * 3),
                tolerance=1e-5,
                relative=True,
            )
        ),
        figure=Chart(panel("at the examples", path[:, :N]), panel("at new inputs", path[:, N:])),
    )


@claim(
    "9.2-flow-general-loss",
    title="Any loss of the outputs",
    kind="theorem",
    of=("train.gradient_flow", "explain.ntk", "explain.kernel_gradient_flow"),
)
def any_loss(key, rng):
    r"""For any loss of the outputs $\dot f = -K[\theta_t]\, \nabla_f \ell$. For the cross-entropy
    $\nabla_f \ell$ is the softmax minus the one-hot label, and $K$ has a block for each pair of
    examples: the outputs are coupled.
    """
    net = network(3, 6, 3, key=key)
    xs = rng.normal(size=(4, 3))
    labels = np.array([0, 1, 2, 1])
    batch = jnp.asarray(xs), jnp.asarray(labels)
    flow = flow_around_moments(classified, net, batch)
    f = np.asarray(jax.vmap(lambda model: predict(model, batch[0]))(flow.models))
    slope = lambda f: softmax(f, axis=-1) - np.eye(3)[labels]
    grams = [np.asarray(ntk(model)(batch[0])) for model in models_at_moments(flow)]
    velocities = lambda grams: np.stack(
        [-np.einsum("nmoq,mq->no", K, slope(then)) for K, then in zip(grams, f[2::5])]
    )
    K = np.asarray(ntk(net)(batch[0]))
    start = np.asarray(predict(net, batch[0]))
    times = [0.1, 0.5, 2.0]
    lazy = kernel_gradient_flow(
        ntk(net), log_loss, *batch, times=4 * np.array(times), initial_model=net, tolerance=1e-9
    )
    velocity = lambda t, f: -np.einsum("nmoq,mq->no", K, slope(f.reshape(4, 3))).ravel()
    other = solve_ivp(velocity, (0, 2), start.ravel(), t_eval=times, **ODE).y.T.reshape(3, 4, 3)
    return Verdict(
        close_derivative(
            "cross-entropy of 3 classes, three times",
            time_derivatives(f),
            velocities(grams),
            tolerance=1e-5,
            relative=True,
        ),
        refuted(
            close_derivative(
                "with the diagonal blocks only",
                time_derivatives(f),
                velocities([K * np.eye(3) for K in grams]),
                tolerance=1e-5,
                relative=True,
            )
        ),
        close("a constant kernel: against SciPy", lazy.outputs, other, tolerance=1e-6),
    )


@claim(
    "9.2-flow-closed-form",
    title="A constant kernel: every mode decays at its own rate",
    kind="identity",
    of=("explain.kernel_gradient_descent", "explain.linearise", "train.descend"),
    cites="Lee et al. 2019",
)
def modes(key):
    r"""With a constant $K$, $f(t) = y + e^{-Kt} (f(0) - y)$: along an eigenvector the residual
    decays as $e^{-\lambda_i t}$. Gradient descent leaves $(I - \eta K)^t$ of it.
    """
    case = small(key)
    times = np.array([0.0, 0.05, 0.3, 1.0])
    eta = 0.01
    kernel = ntk(case.net)
    X = case.batch[0]
    K = np.asarray(ntk(case.net, form="trace")(X))
    off = np.asarray(predict(case.net, X))[:, 0] - case.ys
    lazy = kernel_gradient_descent(kernel, X, case.ys[:, None], initial_model=case.net)(N * times)[
        :, :, 0
    ]
    ode = solve_ivp(lambda t, f: K @ (case.ys - f), (0, 1), off + case.ys, t_eval=times, **ODE).y.T
    values, V = np.linalg.eigh(K)
    descent = descend(lambda h, _, key: summed(h, case.batch), optax.sgd(eta))
    keep = lambda state: predict(state.model, X)[:, 0]
    _, (walked, _) = jax.jit(
        lambda h: (None, run(descent, h, jnp.zeros(40), key=key, record=keep)[1])
    )(linearise(case.net))
    powers = np.stack(
        [case.ys + np.linalg.matrix_power(np.eye(N) - eta * K, t) @ off for t in range(1, 41)]
    )
    steps = kernel_gradient_descent(
        kernel, X, case.ys[:, None], initial_model=case.net, learning_rate=N * eta
    )(np.arange(1, 41))[:, :, 0]
    share = ((lazy - case.ys) @ V) / (off @ V)
    return Verdict(
        close(
            "four times, against exp(−Kt)",
            lazy,
            [case.ys + expm(-K * t) @ off for t in times],
            tolerance=1e-10,
        ),
        close("against SciPy's solve_ivp", lazy, ode, tolerance=1e-8),
        close(
            "modes: the remaining share of each, exp(−λt)",
            share,
            np.exp(-values * times[:, None]),
            tolerance=1e-9,
        ),
        close(
            "40 steps of gradient descent of the linearised network, against (I − ηK)ᵗ",
            walked,
            powers,
            tolerance=1e-10,
        ),
        close("the same in closed form", steps, powers, tolerance=1e-10),
        refuted(
            close(
                "40 steps, against the flow at 40η",
                walked[-1],
                case.ys + expm(-K * 40 * eta) @ off,
                tolerance=1e-4,
            )
        ),
        figure=_decays(case, values, V, off),
        assumed=(
            "The notes' loss is a sum; time and the library's learning rate are scaled by n.",
        ),
    )


def _decays(case: Case, values: np.ndarray, V: np.ndarray, off: np.ndarray) -> Panel:
    """Modes of the linearised network, and of the network along the same vectors."""
    times = np.linspace(0.002, 0.5, 60)
    flow = gradient_flow(summed, case.net, case.batch, times=times, tolerance=1e-8)
    f = np.asarray(jax.vmap(lambda model: predict(model, case.batch[0]))(flow.models))[:, :, 0]
    true = np.abs((f - case.ys) @ V / (off @ V))
    indices = (4, 3, 2)
    broken = lambda parts: np.concatenate([np.append(part, np.nan) for part in parts])
    return Panel(
        "time",
        "remaining share of a mode",
        log="y",
        lines={f"λ = {values[i]:.3g}": (times, np.exp(-values[i] * times)) for i in indices},
        bounds={"the network": (broken([times] * 3), broken(true[:, indices].T))},
    )
