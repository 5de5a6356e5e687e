"""§5.3: a decoder that looks back, and what it looks at."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.optimize import linprog
from scipy.special import softmax

from ... import models, train, tree
from ...core import run
from ...layers import GRU, Additive
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, falls, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .by_loop import FD

BATCH, STEPS = 32, 900


def looked(rng, *, places=7):
    """A layer, a state, and a memory."""
    W = rng.normal(size=(6, 3))
    M = rng.normal(size=(6, 4))
    v = rng.normal(size=6)
    return (
        (W, M, v),
        Additive(*map(jnp.asarray, (W, M, v))),
        rng.normal(size=3),
        rng.normal(size=(places, 4)),
    )


@claim(
    "5.3-bahdanau",
    title="Additive attention",
    kind="layer",
    of=("layers.Additive",),
    cites="Bahdanau, Cho & Bengio 2015",
)
def additive(key):
    r"""$a_{ij} = \mathrm{softmax}_j(\mathrm{MLP}(z_{i-1}, \zeta_j))$, with
    $v^\top \tanh(W z_{i-1} + M \zeta_j)$ for the network, and $c_i = \sum_{j=1}^m a_{ij} \zeta_j$:
    a point in the convex hull of the $\zeta_j$, whatever their order.
    """
    rng = chance(key)
    (W, M, v), layer, z, zeta = looked(rng)
    a = np.asarray(layer.weights(jnp.asarray(z), jnp.asarray(zeta)))
    context = lambda zeta: np.asarray(layer(jnp.asarray(z), jnp.asarray(zeta)))
    order = rng.permutation(7)
    hull = linprog(
        np.zeros(7), A_eq=np.vstack([zeta.T, np.ones(7)]), b_eq=np.append(context(zeta), 1)
    )
    outside = linprog(
        np.zeros(7), A_eq=np.vstack([zeta.T, np.ones(7)]), b_eq=np.append(9 + zeta.max(axis=0), 1)
    )
    flat = Additive(layer.W, layer.M, jnp.zeros(6))
    theta, back = tree.ravel((layer, jnp.asarray(z), jnp.asarray(zeta)))
    c = jnp.asarray(rng.normal(size=4))

    def value(theta):
        layer, z, zeta = back(theta)
        return jnp.vdot(c, layer(z, zeta))

    return Verdict(
        close("a, by the formula", a, softmax(np.tanh(z @ W.T + zeta @ M.T) @ v), tolerance=1e-14),
        close("c, by the formula", context(zeta), a @ zeta, tolerance=1e-14),
        close("a sums to 1", a.sum(), 1.0, tolerance=1e-14),
        at_least("the least of a", a.min(), 0.0),
        equal("c in the convex hull, by a linear program (0: found)", hull.status, 0),
        refuted(equal("a point far off, by the same (0: found)", outside.status, 0)),
        close("another order: the same c", context(zeta[order]), context(zeta), tolerance=1e-14),
        close(
            "another order: a in that order",
            layer.weights(jnp.asarray(z), jnp.asarray(zeta[order])),
            a[order],
            tolerance=1e-14,
        ),
        close(
            "a network that says the same of all: the mean",
            flat(jnp.asarray(z), jnp.asarray(zeta)),
            zeta.mean(axis=0),
            tolerance=1e-14,
        ),
        close(
            f"all {theta.size} derivatives", jax.grad(value)(theta), jacobian(value, theta), **FD
        ),
    )


@erratum(
    "5.3-bahdanau",
    title="The sum goes over the source",
    printed=r"c_t = \sum_{i=1}^{T} a_{ti} \zeta_i",
    corrected=r"c_t = \sum_{i=1}^{m} a_{ti} \zeta_i",
    of=("layers.Additive",),
    slip=True,
)
def over_the_source(key):
    r"""The source is $x_1, \dots, x_m$ in this section; a sum to $T$, the length of another
    sequence, leaves out a part of it or asks for more than there is."""
    rng = chance(key)
    T = 4
    _, layer, z, zeta = looked(rng)
    a = np.asarray(layer.weights(jnp.asarray(z), jnp.asarray(zeta)))
    found = layer(jnp.asarray(z), jnp.asarray(zeta))
    return Verdict(
        close("the context, 7 places of the source", found, a @ zeta, tolerance=1e-13),
        close("its weights sum to 1", a.sum(), 1.0, tolerance=1e-13),
        printed=[
            close(
                "the context, 7 places and a target of 4", found, a[:T] @ zeta[:T], tolerance=1e-13
            ),
            close("its weights sum to 1", a[:T].sum(), 1.0, tolerance=1e-13),
        ],
    )


def repeat(key, count, *, size, length, turn=False):
    """Random tokens to be said again, or from the end: the source, the target from its beginning
    on, what follows.
    """
    source = jr.randint(key, (count, length), 0, size)
    said = source[:, ::-1] if turn else source
    return (source, jnp.concatenate([jnp.full((count, 1), size), said[:, :-1]], axis=1)), said


def taught(key, *, attend=None, **task):
    """A model with cells of 16 units after training, and examples that it has not seen."""
    key_model, key_data, key_test = jr.split(key, 3)
    size = task["size"]
    model = models.EncoderDecoder.init(
        size, size + 1, 8, 16, attention_width=attend, cell=GRU.init, key=key_model
    )
    model = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    data = repeat(key_data, STEPS * BATCH, **task)
    batches = jax.tree.map(lambda a: a.reshape(STEPS, BATCH, -1), data)
    rate = optax.cosine_decay_schedule(0.01, STEPS)
    descent = train.descend(
        train.token_cross_entropy, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    )
    return run(descent, model, batches, key=key)[0].model, repeat(key_test, 300, **task)


@claim(
    "5.3-bottleneck",
    title="All of it in one state",
    kind="experiment",
    of=("models.EncoderDecoder",),
    cites="Cho et al. 2014; Bahdanau, Cho & Bengio 2015",
)
def bottleneck(key):
    r"""The state $\zeta$ has as many numbers for a long source as for a short one:
    $\partial \zeta / \partial x_{1:m}$ has at most the rank $\dim \zeta$. So sequences copied by
    way of it come out right ever less often as they grow; with attention they do.
    """
    lengths = (3, 6, 12)

    def copied(key, length, attend):
        model, test = taught(key, size=6, length=length, attend=attend)
        return 1 - train.sequence_error_rate(model, test)

    learn = jax.jit(copied, static_argnums=(1, 2))
    plain = [float(learn(key, length, None)) for length in lengths]
    looking = float(learn(key, lengths[-1], 16))
    small = models.EncoderDecoder.init(5, 5, 4, 6, cell=GRU.init, key=key)
    encoded = lambda xs: small.encoder.along(xs, jnp.ones(len(xs), bool))[0][1]
    ranks = [
        np.linalg.matrix_rank(
            np.asarray(jax.jacfwd(encoded)(jr.normal(key, (length, 4)))).reshape(6, -1)
        )
        for length in (1, 2, 5)
    ]
    return Verdict(
        equal("rank of ∂ζ/∂x, dim ζ = 6, 1, 2 and 5 inputs of 4 numbers", ranks, [4, 6, 6]),
        falls("copied without a mistake: lengths 3, 6 and 12", plain),
        at_least("length 3", plain[0], 0.9),
        at_most("length 12", plain[-1], 0.3),
        at_least("length 12, with attention", looking, 0.95),
        figure=Chart(
            Panel(
                "length",
                "copied without a mistake",
                lines={"one state": (lengths, plain)},
                points={"attention": (lengths[-1:], [looking])},
            )
        ),
    )


@claim(
    "5.3-alignment",
    title="Where it looks",
    kind="experiment",
    of=("models.EncoderDecoder", "train.token_error_rate"),
    cites="Bahdanau, Cho & Bengio 2015",
)
def alignment(key):
    r"""The weights $a_{ij}$ that are learnt align target and source: for the source turned round
    the largest $a_{ij}$ is at $j = m + 1 - i$.
    """
    length = 8

    def look(key):
        model, ((source, target), said) = taught(key, size=30, length=length, attend=16, turn=True)
        right = 1 - train.token_error_rate(model, ((source, target), said))
        return jax.vmap(model.alignment)(source, target), right

    weights, right = jax.jit(look)(key)
    a = np.asarray(weights)
    goal = np.arange(length)[::-1]
    places = np.arange(1, length + 1)
    return Verdict(
        at_least("share of tokens said right", float(right), 0.95),
        at_least(
            "share of i with the largest a_ij at j = m + 1 − i",
            np.mean(a.argmax(axis=2) == goal),
            0.9,
        ),
        refuted(
            at_least(
                "share with the largest at j = i", np.mean(a.argmax(axis=2) == goal[::-1]), 0.9
            )
        ),
        close("a sums to 1", a.sum(axis=2), 1.0, tolerance=1e-5),
        figure=Chart(
            Panel(
                "j",
                "a_ij, mean over sources",
                lines={f"i = {i}": (places, a.mean(axis=0)[i - 1]) for i in (1, 3, 5, 7)},
            )
        ),
    )
