"""§8.5: two experiments with batch normalisation on handwritten digits: which parameter matters,
and why it helps.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.stats import t as student

from ... import data, layers, models, train, tree
from ...plot import Chart, Panel
from ..engine.check import at_least, equal
from ..engine.claim import Verdict, claim


def digits(n: int) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The first `n` digits for training, and the others."""
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs.reshape(len(xs), -1))
    ys = jnp.asarray(ys)
    return (xs[:n], ys[:n]), (xs[n:], ys[n:])


def network(key, *sizes: int, normalise=None) -> models.MLP:
    """An MLP in single precision."""
    return jax.tree.map(
        lambda a: a.astype(jnp.float32), models.MLP.init(*sizes, normalise=normalise, key=key)
    )


VARIANTS = {
    "neither": (0, 0),
    "μ": (0, 1),
    "γ": (1, 0),
    "both": (1, 1),
}  # whether γ and μ are learned


def frozen(model, learns):
    r"""The model, with $\gamma$ and $\mu$ of its norms frozen unless learned."""
    hold = lambda leaf, flag: (
        jax.lax.stop_gradient(leaf) + flag * (leaf - jax.lax.stop_gradient(leaf))
    )
    is_norm = lambda node: isinstance(node, layers.BatchNorm)
    fix = lambda node: layers.BatchNorm(
        hold(node.gamma, learns[0]), hold(node.mu, learns[1]), node.eps
    )
    return jax.tree.map(lambda node: fix(node) if is_norm(node) else node, model, is_leaf=is_norm)


@claim(
    "8.5-bn-gamma-mu",
    title="Scale or shift in batch normalisation",
    kind="experiment",
    of=("layers.BatchNorm", "layers.fold_batch_norm", "models.MLP"),
    cites="Frankle, Schwab & Morcos 2021",
)
def gamma_or_mu(key, scale):
    r"""It is said that of the two parameters of a batch norm $\gamma$ matters more than $\mu$.
    Networks with neither, one or both learned are compared on digits; the test accuracies are
    recorded with 95 % intervals, and no winner is asserted. The frozen parameters have gradient 0.
    """
    seeds, steps = (20, 400) if scale == "full" else (5, 80)
    (xs, ys), test = digits(1200)
    flags = jnp.asarray(list(VARIANTS.values()), jnp.float32)

    def one(key, learns):
        key_init, key_rows = jr.split(key)
        model = network(key_init, 64, 32, 32, 10, normalise=layers.BatchNorm.init)
        descent = train.descend(
            lambda m, batch, key=None: train.cross_entropy(frozen(m, learns), batch),
            optax.adam(1e-2),
        )
        rows = jr.randint(key_rows, (steps, 100), 0, 1200)
        step = lambda state, rows: descent.step(state, (xs[rows], ys[rows]), key=key)
        end = jax.lax.scan(step, descent.init(model), rows)[0].model
        slope = jax.grad(lambda m: train.cross_entropy(frozen(m, learns), (xs[:100], ys[:100])))(
            model
        )
        norms = [layer for layer in slope.body.layers if isinstance(layer, layers.BatchNorm)]
        sizes = jnp.stack(
            [jnp.stack([jnp.abs(n.gamma).max(), jnp.abs(n.mu).max()]) for n in norms]
        ).max(axis=0)
        return 1 - train.error_rate(layers.fold_batch_norm(end, xs), test), sizes

    runs = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)))
    accuracy, sizes = (np.asarray(a, np.float64) for a in runs(jr.split(key, seeds), flags))
    learned = np.array(list(VARIANTS.values())) == 1
    gain = accuracy - accuracy[:, :1]  # paired: same initialisation and same batches
    reach = student.ppf(0.975, seeds - 1) * gain.std(axis=0, ddof=1) / np.sqrt(seeds)
    place = np.arange(4)
    named = "; ".join(f"{i}: {name}" for i, name in enumerate(VARIANTS))
    return Verdict(
        at_least("test accuracy with both, mean of the seeds", accuracy[:, 3].mean(), 0.9),
        equal("largest gradient of the frozen parameters", sizes[:, ~learned].max(), 0.0),
        at_least("gradient of the learned parameters", sizes[:, learned].min(), 1e-6),
        figure=Chart(
            Panel(
                f"learned ({named})",
                "test accuracy",
                points={"a seed": (np.tile(place, seeds), accuracy.ravel())},
                lines={"mean": (place, accuracy.mean(axis=0))},
            ),
            Panel(
                "learned",
                "accuracy gain over learning neither",
                lines={"mean": (place[1:], gain.mean(axis=0)[1:])},
                bands={
                    "95 %": (
                        place[1:],
                        (gain.mean(axis=0) - reach)[1:],
                        (gain.mean(axis=0) + reach)[1:],
                    )
                },
                bounds={"no gain": (place[1:], np.zeros(3))},
            ),
        ),
    )


RATES = 0.05 * 2.0 ** np.arange(8)
ALONG = np.array([0.5, 1.0, 2.0, 4.0])  # positions along a step, in units of its length


@claim(
    "8.5-bn-why",
    title="Batch norm makes the loss smoother along gradient steps",
    kind="experiment",
    of=("layers.BatchNorm", "models.MLP", "train.descend"),
    cites="Santurkar et al. 2018",
)
def smoother(key, scale):
    r"""A network of six layers with batch norms is stable at learning rates at least twice as large
    as without, and along each gradient step its loss varies less: the problem is better
    conditioned.
    """
    n, steps = (1000, 60) if scale == "full" else (128, 20)
    batch, _ = digits(n)
    results = {}
    for name, norm in {"without": None, "with batch norm": layers.BatchNorm.init}.items():
        one = lambda key, norm=norm: _descents(
            network(key, 64, *[24] * 5, 10, normalise=norm), batch, steps
        )
        results[name] = [
            np.asarray(a, np.float64) for a in jax.jit(jax.vmap(one))(jr.split(key, 5))
        ]
    stable = {name: _stable(losses) for name, (losses, _) in results.items()}
    largest = {name: RATES[fine.sum(axis=1) - 1] for name, fine in stable.items()}
    spread = {
        name: along[:, 2].var(axis=2) for name, (_, along) in results.items()
    }  # at learning rate 0.2
    more = np.log2(largest["with batch norm"] / largest["without"])
    fewer = spread["with batch norm"].mean(axis=1) < spread["without"].mean(axis=1)
    t = np.arange(1, steps + 1)
    ends = {
        name: np.minimum(np.nan_to_num(losses[:, :, -1], nan=5.0), 5.0)
        for name, (losses, _) in results.items()
    }
    return Verdict(
        at_least(
            "largest stable learning rate with batch norm, over that without, mean of 5 seeds",
            2 ** more.mean(),
            2.0,
        ),
        at_least("seeds of 5 in which the loss varies less along the steps", int(fewer.sum()), 4),
        assumptions=[
            at_least(
                f"{name}: seeds of 5 in which the smallest learning rate is stable",
                int(fine[:, 0].sum()),
                5,
            )
            for name, fine in stable.items()
        ],
        figure=Chart(
            Panel(
                "rate",
                f"loss after {steps} steps",
                log="x",
                lines={name: (RATES, np.median(end, axis=0)) for name, end in ends.items()},
            ),
            Panel(
                "step",
                "variance of the loss along it",
                log="y",
                lines={name: (t, np.median(values, axis=0)) for name, values in spread.items()},
            ),
        ),
    )


def _descents(model, batch, steps):
    """At each learning rate: the loss before every step of gradient descent, and at four positions
    along the step.
    """

    def at(rate):
        descent = train.descend(train.cross_entropy, optax.sgd(rate))

        def step(state, _):
            after, info = descent.step(state, batch, key=jr.key(0))
            towards = tree.axpy(-1.0, state.model, after.model)
            along = lambda share: train.cross_entropy(tree.axpy(share, towards, state.model), batch)
            return after, (info.loss, jax.vmap(along)(jnp.asarray(ALONG, jnp.float32)))

        return jax.lax.scan(step, descent.init(model), length=steps)[1]

    return jax.vmap(at)(jnp.asarray(RATES, jnp.float32))


def _stable(losses: np.ndarray) -> np.ndarray:
    """By seed and learning rate: whether, at this rate and all smaller ones, the loss ends below
    its initial value and never rises far above it.
    """
    fine = (losses.max(axis=2) < 1.2 * losses[:, :, 0]) & (
        losses[:, :, -1] < losses[:, :, 0]
    )  # False for NaN
    return np.logical_and.accumulate(fine, axis=1)
