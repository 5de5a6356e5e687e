"""§8.7: data augmentation."""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data, layers, models, train, tree
from ...core import predict
from ...plot import Panel
from ..engine.check import at_least, close, equal, refuted, within
from ..engine.claim import Verdict, claim

TURNS = (lambda x: x, lambda x: jnp.roll(x, 1), lambda x: -jnp.flip(x))
BY_HAND = (lambda x: x, lambda x: np.roll(x, 1), lambda x: -x[::-1])


@claim(
    "8.7-augmentation",
    title="Data augmentation",
    kind="algorithm",
    of=("data.augment.apply_all", "data.augment.one_of", "train.with_augmentation"),
    cites="Simard, Steinkraus & Platt 2003",
)
def augmentation(key, rng):
    r"""The $n$ examples become $\bigcup_k \{(\tau_k(x_i), y_i)\}$, $nK$ examples with unchanged
    labels. Drawing one $\tau_k$ for each example at every step gives the same gradient on average.
    The original examples are included only if some $\tau_k$ is the identity.
    """
    n, K, draws = 3, 3, 2000
    xs = rng.normal(size=(n, 4))
    ys = np.array([2, 0, 1])
    many, labels = data.augment.apply_all(jnp.asarray(xs), jnp.asarray(ys), *TURNS)
    model = models.MLP.init(4, 5, 3, activation=layers.tanh, key=key)
    flat = lambda grad: tree.ravel(grad)[0]
    slope = jax.jit(lambda model, xs, ys: flat(jax.grad(train.cross_entropy)(model, (xs, ys))))
    union_gradient = np.asarray(slope(model, many, labels))
    choices = np.array(
        [[turn(x) for turn, x in zip(row, xs)] for row in product(BY_HAND, repeat=n)]
    )  # K^n batches
    each = np.asarray(
        jax.vmap(slope, in_axes=(None, 0, None))(model, jnp.asarray(choices), jnp.asarray(ys))
    )
    objective = train.with_augmentation(train.cross_entropy, data.augment.one_of(*TURNS))
    batch = jnp.asarray(xs), jnp.asarray(ys)
    one = lambda model, batch, key: flat(jax.grad(objective)(model, batch, key=key))
    sampled = jax.jit(jax.vmap(one, in_axes=(None, None, 0)))(model, batch, jr.split(key, draws))
    n_originals = lambda pool: sum(
        any(np.array_equal(x, other) for other in np.asarray(pool)) for x in xs
    )
    others, _ = data.augment.apply_all(jnp.asarray(xs), jnp.asarray(ys), *TURNS[1:])
    return Verdict(
        equal("number of examples", len(many), n * K),
        equal("the inputs", many, np.array([turn(x) for turn in BY_HAND for x in xs])),
        equal("the labels", labels, np.array([y for _ in range(K) for y in ys])),
        close(
            "gradient over the union, against the mean over all 27 draws",
            union_gradient,
            each.mean(axis=0),
            tolerance=1e-14,
            method="brute force",
        ),
        within(
            "mean gradient of 2,000 draws on the fly",
            np.asarray(sampled).mean(axis=0),
            union_gradient,
            error=each.std(axis=0) / np.sqrt(draws),
        ),
        refuted(
            close(
                "gradient over the original examples only",
                slope(model, *batch),
                union_gradient,
                tolerance=1e-3,
            )
        ),
        equal("original examples, with the identity", n_originals(many), n),
        equal("original examples, without the identity", n_originals(others), 0),
    )


@claim(
    "8.7-augment-invariance",
    title="Invariance learned from augmentation",
    kind="experiment",
    of=(
        "data.augment.shift",
        "data.augment.apply_all",
        "train.with_augmentation",
        "models.least_squares",
    ),
    cites="Chen, Dobriban & Lee 2020",
)
def invariance(key, rng, scale):
    r"""The predictions of a network trained on shifted digits change under a shift less than half
    as much as without augmentation. A linear model trained on a whole group of transformations is
    exactly invariant: it is the least-squares fit to inputs averaged over the group.
    """
    seeds, steps = (10, 1000) if scale == "full" else (4, 200)
    xs, ys = data.load("digits").train
    results = jax.jit(jax.vmap(lambda key: _changes(key, jnp.asarray(xs), jnp.asarray(ys), steps)))(
        jr.split(key, seeds)
    )
    plain, taught = (np.asarray(a, np.float64) for a in results)
    d = 5
    X = rng.normal(size=(30, d)) + 0.5
    y = rng.normal(size=30)
    cyclic = [lambda x, g=g: jnp.roll(x, g) for g in range(d)]
    shifted, repeated = data.augment.apply_all(jnp.asarray(X), jnp.asarray(y), *cyclic)
    fit = models.least_squares(shifted, repeated)
    slope, offset = np.polyfit(X.mean(axis=1), y, 1)
    w = rng.normal(size=d)
    averaged = predict(layers.Linear(jnp.asarray(w)[None]), shifted).reshape(d, 30).mean(axis=0)
    symmetric = np.mean([np.roll(w, -g) for g in range(d)], axis=0)
    alone = np.asarray(models.least_squares(jnp.asarray(X), jnp.asarray(y)).W)[0]
    shifts = np.arange(9)
    return Verdict(
        at_least(
            "change of the probabilities under a shift, without over with, smallest over seeds",
            (plain.mean(axis=1) / taught.mean(axis=1)).min(),
            2.0,
        ),
        close(
            "linear, all cyclic shifts: the weights",
            np.asarray(fit.W)[0],
            np.full(d, slope / d),
            tolerance=1e-10,
        ),
        close(
            "its outputs, against the fit to averaged inputs",
            predict(fit, jnp.asarray(X))[:, 0],
            slope * X.mean(axis=1) + offset,
            tolerance=1e-10,
        ),
        close(
            "any linear model averaged over the group, against averaged weights",
            averaged,
            X @ symmetric,
        ),
        refuted(
            close(
                "weights of the fit without shifts, against their mean",
                alone,
                np.full(d, alone.mean()),
                tolerance=1e-2,
            )
        ),
        figure=Panel(
            "shift (0 to 8, row by row; 4 is no shift)",
            "change of the probabilities, 0 to 1",
            points={
                "without augmentation": (shifts, np.insert(plain.mean(axis=0), 4, 0)),
                "trained on shifts": (shifts, np.insert(taught.mean(axis=0), 4, 0)),
            },
        ),
    )


def _changes(key, xs, ys, steps):
    """The change of the test probabilities under each of the eight shifts by a pixel, without and
    with augmentation.
    """
    key_rows, key_init, key_batch, key_run = jr.split(key, 4)
    rows = jr.permutation(key_rows, len(xs))
    xs = xs[rows]
    ys = ys[rows]
    model = jax.tree.map(lambda a: a.astype(jnp.float32), models.MLP.init(64, 64, 10, key=key_init))
    batches = jr.randint(key_batch, (steps, 64), 0, 1500)
    padded = jnp.pad(xs[1500:], ((0, 0), (1, 1), (1, 1)))
    places = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    shifted = jnp.stack([padded[:, i : i + 8, j : j + 8] for i, j in places])

    def changes(objective):
        descent = train.descend(objective, optax.adam(5e-3))
        step = lambda state, item: descent.step(state, (xs[item[0]], ys[item[0]]), key=item[1])
        end = jax.lax.scan(step, descent.init(model), (batches, jr.split(key_run, steps)))[0].model
        p = lambda xs: jax.nn.softmax(predict(end, xs))
        still = p(xs[1500:])
        return jnp.abs(jax.vmap(p)(shifted) - still[None]).sum(axis=2).mean(axis=1) / 2

    return changes(train.cross_entropy), changes(
        train.with_augmentation(train.cross_entropy, data.augment.shift(pixels=1))
    )
