"""§8.3: early stopping: the rule, its effect, and its relation to weight decay."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import explain, layers, models, train
from ...core import predict
from ...plot import Chart, Panel
from ..ch03_gradients.problems import descent, spectrum
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.numpy_rng import numpy_rng
from .quadratic import bowl


class Counter(eqx.Module):
    """A model that counts its steps."""

    t: jax.Array

    def __call__(self, x):
        return self.t


def _counting_loss(model, batch, *, key=None):
    """A loss on which gradient descent with learning rate 1 counts."""
    return -model.t


def _scripted_error(model, script, *, key=None):
    """The scripted validation error of the counter's current epoch."""
    return script[jnp.round(model.t).astype(int) - 1]


def _rule(errors, patience):
    """The epoch at which early stopping stops, and the epoch whose weights it returns; both count
    from 1.
    """
    best, lowest, waited = 0, np.inf, 0
    for epoch, error in enumerate(errors, start=1):
        if error < lowest:
            best, lowest, waited = epoch, error, 0
        else:
            waited += 1
        if waited >= patience:
            break
    return epoch, best


def _fitted(script, patience, key):
    """The library's fit on the script: the stopping epoch, the returned epoch, and the reason."""
    result = train.fit(
        train.descend(_counting_loss, optax.sgd(1.0)),
        Counter(jnp.zeros(())),
        jnp.zeros(1),
        epochs=len(script),
        batch_size=1,
        validation=jnp.asarray(script),
        metrics={"scripted": _scripted_error},
        patience=patience,
        key=key,
        progress=train.Silent(),
    )
    return len(result.history["valid scripted"]), float(result.model.t), result.reason


@claim(
    "8.3-early-stopping",
    title="Early stopping",
    kind="algorithm",
    of=("train.fit",),
    cites="Morgan & Bourlard 1990; Prechelt 1998",
)
def early_stopping(key, rng):
    r"""Measure the error on held-out examples after every epoch, stop when it has not decreased for
    $p$ epochs in a row (the patience), and return the weights of the best epoch. If a network can
    fit the noise, its test error is smaller at the stop than at the end.
    """
    scripts = [
        np.array([9.0, 5, 6, 4, 4, 5, 3, 7, 8, 9, 9, 9]),
        rng.integers(0, 20, 12) + np.linspace(6, 0, 12),
    ]
    cases = [(script, p) for script in scripts for p in (1, 2, 3)]
    results = [_fitted(script, p, key)[:2] for script, p in cases]
    *endless, reason = _fitted(scripts[0], 1000, key)
    train_error, valid, test = _overfitted(jr.split(key, 10))
    stops = [_rule(curve, 5)[1] - 1 for curve in valid]
    at_stop = test[np.arange(10), stops]
    at_end = test[:, -1]
    median_run = int(np.argsort(at_end / at_stop)[5])
    epochs = 10 * np.arange(1, test.shape[1] + 1)
    return Verdict(
        equal(
            "the last and the best epoch of 6 fits",
            results,
            [_rule(*pair) for pair in cases],
            method="brute force",
        ),
        equal("with unlimited patience", endless, [12, 7]),
        equal("and the reported reason", reason, "all 12 epochs done"),
        at_least(
            "seeds of 10 whose test error is lower at the stop than at the end",
            np.sum(at_stop < at_end),
            9,
        ),
        figure=Panel(
            "step",
            "mean squared error / 2",
            lines={
                "training": (epochs, train_error[median_run]),
                "validation": (epochs, valid[median_run]),
                "test": (epochs, test[median_run]),
            },
            vertical_lines={"returned": float(epochs[stops[median_run]])},
        ),
    )


def _overfitted(keys):
    """Training, validation and test error of a network on 30 noisy points, every 10 steps, `seeds
    checks`.
    """
    iteration = train.descend(train.squared_error, optax.adam(0.001))

    def one(key):
        key_x, key_w, key_noise, key_net, key_run = jr.split(key, 5)
        xs = jr.normal(key_x, (390, 5))
        w = jr.normal(key_w, (5,))
        ys = jnp.sin(xs @ w / jnp.linalg.norm(w)) + 0.5 * jr.normal(key_noise, (390,))
        parts = [(xs[rows], ys[rows]) for rows in (slice(30), slice(30, 90), slice(90, 390))]

        def check(state, keys):
            state = jax.lax.scan(
                lambda s, key: (iteration.step(s, parts[0], key=key)[0], None), state, keys
            )[0]
            return state, jnp.array([train.squared_error(state.model, part) for part in parts])

        start = iteration.init(
            models.MLP.init(5, 32, 1, activation=jnp.tanh, initialiser=layers.lecun, key=key_net)
        )
        return jax.lax.scan(check, start, jr.split(key_run, (100, 10)))[1].T

    return np.moveaxis(np.asarray(jax.jit(jax.vmap(one))(keys)), 1, 0)


@claim(
    "8.3-signal-first",
    title="Signal is learned before noise",
    kind="experiment",
    of=("train.descend", "explain.early_stopping_factor"),
    cites="Arpit et al. 2017; Advani & Saxe 2017",
)
def signal_first(key, rng):
    r"""The components that dominate the gradient are fitted first: in linear regression the
    residual along a direction of curvature $\lambda$ decays as $(1 - \eta\lambda)^t$, so that a
    signal along large $\lambda$ is learned before the noise. A network trained on labels of which a
    fifth are flipped fits the correct ones first.
    """
    U = np.linalg.qr(rng.normal(size=(30, 6)))[0]
    V = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    s = np.sqrt(30 * np.array([4.0, 3.0, 0.3, 0.1, 0.03, 0.01]))
    n = 30
    eta = 0.2
    X = U * s @ V.T
    signal = U[:, :2] @ np.array([8.0, -6.0])
    y = signal + rng.normal(size=n)
    batch = jnp.asarray(X), jnp.asarray(y)
    loss = lambda theta, _, key=None: train.squared_error(layers.Linear(theta[None]), batch)
    residuals = (y - descent(loss, optax.sgd(eta), np.zeros(6), 80) @ X.T) @ U
    t = np.arange(81)
    lam = s**2 / n
    remaining = 1 - np.stack(
        [explain.early_stopping_factor(lam, learning_rate=eta, steps=int(T)) for T in t]
    )
    clean, flipped = _memorised(jr.split(key, 5))
    learned = np.argmax(clean >= 0.9, axis=1)
    steps = np.arange(clean.shape[1])
    # After the last step at which a flipped label is not fitted; at initialisation some agree.
    noisy = 1 + np.where(flipped <= 0.5, steps, -1).max(axis=1)
    return Verdict(
        close(
            "residuals along the six directions, 80 steps",
            residuals,
            (1 - eta * lam) ** t[:, None] * (y @ U),
            tolerance=1e-11,
        ),
        close("by the library's factor", residuals, remaining * residuals[0], tolerance=1e-11),
        at_most(
            "remaining share of the signal after 10 steps",
            relative_norm(residuals[10, :2], signal),
            1e-2,
        ),
        at_least(
            "remaining share of the noise in the other directions",
            relative_norm(residuals[10, 2:], residuals[0, 2:]),
            0.5,
        ),
        at_least("5 networks: largest share of the true labels fitted", clean.max(axis=1), 0.9),
        at_most(
            "share of the flipped labels fitted when that is first 0.9",
            flipped[np.arange(5), learned],
            0.5,
        ),
        at_least("steps until more than half of them stay fitted", noisy - learned, 1),
        at_least("share of the flipped labels fitted at the end", flipped[:, -1], 0.5),
        figure=Chart(
            Panel(
                "step",
                "residual along a direction",
                log="y",
                lines={
                    f"λ = {lam[i]:g}": (t[:13], np.abs(residuals[:13, i])) for i in (0, 1, 2, 4)
                },
            ),
            Panel(
                "step",
                "share fitted",
                lines={
                    "true labels": (steps, clean.mean(axis=0)),
                    "flipped labels": (steps, flipped.mean(axis=0)),
                },
            ),
        ),
    )


def _memorised(keys):
    """The shares of true and of flipped labels that a network has fitted, before each of 200 steps:
    `seeds steps`.
    """
    iteration = train.descend(train.cross_entropy, optax.adam(0.003))

    def one(key):
        key_x, key_net = jr.split(key)
        ys = jnp.arange(100) % 2
        xs = jr.normal(key_x, (100, 20)) + 0.5 * jnp.where(ys == 0, 1.0, -1.0)[:, None]
        wrong = jnp.arange(100) < 20
        labels = jnp.where(wrong, 1 - ys, ys)

        def step(state, key):
            right = predict(state.model, xs).argmax(axis=1) == labels
            shares = right[20:].mean(), right[:20].mean()
            return iteration.step(state, (xs, labels), key=key)[0], shares

        return jax.lax.scan(
            step, iteration.init(models.MLP.init(20, 64, 2, key=key_net)), jr.split(key, 200)
        )[1]

    return [np.asarray(curve) for curve in jax.jit(jax.vmap(one))(keys)]


def relative_norm(part, reference):
    """The norm of one vector relative to another."""
    return float(np.linalg.norm(part) / np.linalg.norm(reference))


def _problem(key):
    """A quadratic, its minimiser, its eigenvalues and eigenvectors."""
    rng = numpy_rng(key)
    H = spectrum(rng, [0.05, 0.4, 1.0, 2.2])
    best = rng.normal(size=4)
    return bowl(H, best), H, best, *np.linalg.eigh(H)


@claim(
    "8.3-gd-linearised",
    title="Gradient descent near a minimiser",
    kind="identity",
    of=("train.descend",),
)
def linearised(key, rng):
    r"""Near a minimiser gradient descent is linear,
    $\theta_{t+1} - \theta^* = (I - \eta H)(\theta_t - \theta^*) = Q^\top (I - \eta\Lambda) Q
    (\theta_t - \theta^*)$ with $H = Q^\top \Lambda Q$; exactly if the loss is quadratic.
    """
    loss, H, best, values, vectors = _problem(key)
    offsets = descent(loss, optax.sgd(0.3), rng.normal(size=4), 50) - best
    in_basis = (offsets[:-1] @ vectors * (1 - 0.3 * values)) @ vectors.T
    return Verdict(
        close(
            "50 steps, each by I − ηH",
            offsets[1:],
            offsets[:-1] @ (np.eye(4) - 0.3 * H),
            tolerance=1e-13,
        ),
        close("each step in the eigenbasis", offsets[1:], in_basis, tolerance=1e-13),
        close(
            "in closed form",
            offsets[-1],
            np.linalg.matrix_power(np.eye(4) - 0.3 * H, 50) @ offsets[0],
        ),
        refuted(
            close("by I + ηH", offsets[1:], offsets[:-1] @ (np.eye(4) + 0.3 * H), tolerance=1e-3)
        ),
    )


@claim(
    "8.3-es-iterate",
    title="The iterate at an early stop",
    kind="theorem",
    of=("explain.early_stopping_factor", "explain.effective_parameters", "train.descend"),
)
def iterate(key):
    r"""From $\theta_0 = 0$, in the eigenbasis, $\theta_T = (I - (I - \eta\Lambda)^T)\, \theta^*$:
    component $i$ has reached the share $1 - (1 - \eta\lambda_i)^T$ of the minimiser after $T$
    steps.
    """
    loss, _, best, values, vectors = _problem(key)
    path = descent(loss, optax.sgd(0.3), np.zeros(4), 100) @ vectors
    times = (1, 7, 100)
    factor = lambda T: explain.early_stopping_factor(values, learning_rate=0.3, steps=T)
    result = explain.effective_parameters(
        loss, jnp.asarray(best), None, learning_rate=0.3, steps=7, key=key
    )
    t = np.arange(101)
    reached = np.abs(path / (best @ vectors))
    return Verdict(
        *[
            close(f"T = {T}: descent, against the formula", path[T], factor(T) * (vectors.T @ best))
            for T in times
        ],
        refuted(
            close(
                "T = 7: the formula for one more step",
                path[7],
                factor(8) * (vectors.T @ best),
                tolerance=1e-3,
            )
        ),
        close(
            "T = 7: by the curvatures of the loss, matrix-free",
            result.factors[::-1],
            path[7] / (vectors.T @ best),
            tolerance=1e-9,
        ),
        figure=Panel(
            "step",
            "share of the minimiser reached",
            lines={f"λ = {v:.2g}": (t, reached[:, i]) for i, v in enumerate(values)},
        ),
    )


@erratum(
    "8.3-es-iterate",
    title="Brackets around the factor, and the missing minimiser",
    printed=r"\theta_T = I - (I - \eta\Lambda)^T \theta^* = \mathrm{diag}\big(1 - (1 - "
    r"\eta\lambda_i)^T\big)",
    corrected=r"\theta_T = \big(I - (I - \eta\Lambda)^T\big)\, \theta^* ="
    r" \mathrm{diag}\big(1 - (1 - \eta\lambda_i)^T\big)\, \theta^*",
    of=("explain.early_stopping_factor",),
    slip=True,
)
def iterate_printed(key):
    r"""Printed without brackets, $I - (I - \eta\Lambda)^T\theta^*$ subtracts a vector from a
    matrix; even entry by entry it is not the iterate. The last form lacks $\theta^*$. The next
    display is right.
    """
    loss, _, best, values, vectors = _problem(key)
    reached = descent(loss, optax.sgd(0.3), np.zeros(4), 7)[-1] @ vectors
    along = vectors.T @ best
    factor = explain.early_stopping_factor(values, learning_rate=0.3, steps=7)
    against = lambda name, formula: close(f"T = 7: {name}", formula, reached)
    return Verdict(
        against("with brackets", factor * along),
        printed=[
            against("without brackets", 1 - (1 - factor) * along),
            against("without θ*", factor),
        ],
    )


@claim(
    "8.3-es-wd-equiv",
    title="Early stopping is similar to weight decay",
    kind="theorem",
    of=(
        "explain.weight_decay_equivalent_steps",
        "explain.early_stopping_factor",
        "explain.weight_decay_factor",
    ),
    cites="Bishop 1995",
)
def equivalence(key):
    r"""Along one direction, $T = \frac{\log(1 + \lambda/\mu)}{-\log(1 - \eta\lambda)}$ steps have
    the same effect as weight decay, $\frac{\lambda}{\lambda + \mu} = 1 - (1 - \eta\lambda)^T$;
    where $\mu \gg \lambda$ and $\eta\lambda \ll 1$ this is $T \approx \frac{1}{\eta\mu}$, the same
    for all directions.
    """
    loss, H, best, values, _ = _problem(key)
    mu = 100 * values[-1]
    eta = 1 / (10 * mu)
    T = explain.weight_decay_equivalent_steps(values, learning_rate=eta, strength=mu)
    some = explain.weight_decay_equivalent_steps(values, learning_rate=0.1, strength=0.5)
    stopped = descent(loss, optax.sgd(eta), np.zeros(4), round(1 / (eta * mu)))[-1]
    decayed = np.linalg.solve(H + mu * np.eye(4), H @ best)
    few = (
        explain.weight_decay_equivalent_steps([0.92, 2.08], learning_rate=1e-3, strength=0.01)
        * 1e-3
        * 0.01
    )
    lam = np.geomspace(1e-2, 1e2, 200)
    equal_steps = explain.weight_decay_equivalent_steps(lam, learning_rate=1e-3, strength=1.0)
    return Verdict(
        close(
            "1 − (1 − ηλ)ᵀ, against λ/(λ + μ)",
            1 - (1 - 0.1 * values) ** some,
            values / (values + 0.5),
        ),
        close("T · ημ where μ = 100 λ_max, η = 1/(10μ)", T * eta * mu, 1.0, tolerance=0.01),
        at_most(
            "distance of θ_T and θ*_μ there, over ‖θ*_μ‖",
            relative_norm(stopped - decayed, decayed),
            0.02,
        ),
        close("T · ημ where μ = 0.01, λ = 0.92 and 2.08", few, [0.05, 0.03], tolerance=0.005),
        refuted(close("the same, against 1", few, 1.0, tolerance=0.01)),
        figure=Chart(
            Panel(
                "curvature λ, in units of μ",
                "share of the minimiser that is left",
                log="x",
                lines={
                    "decay": (lam, explain.weight_decay_factor(lam, strength=1.0)),
                    "1/(ημ) steps": (
                        lam,
                        explain.early_stopping_factor(lam, learning_rate=1e-3, steps=1000),
                    ),
                },
            ),
            Panel(
                "curvature λ, in units of μ",
                "T · ημ",
                log="xy",
                lines={"equivalent T": (lam, 1e-3 * equal_steps)},
                bounds={"1": (lam, np.ones(200))},
            ),
        ),
    )
