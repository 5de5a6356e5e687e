"""§5.3: additive attention in an encoder-decoder, and the alignments it learns."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.optimize import linprog
from scipy.special import softmax

from ... import models, train, tree
from ...core import run
from ...layers import GRU, AdditiveAttention
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, decreasing, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian

BATCH, STEPS = 32, 900


def random_attention(rng, *, length=7):
    """Random weights, their attention layer, a decoder state, and encoder states."""
    W = rng.normal(size=(6, 3))
    M = rng.normal(size=(6, 4))
    v = rng.normal(size=6)
    return (
        (W, M, v),
        AdditiveAttention(*map(jnp.asarray, (W, M, v))),
        rng.normal(size=3),
        rng.normal(size=(length, 4)),
    )


@claim(
    "5.3-bahdanau",
    title="Additive attention",
    kind="layer",
    of=("layers.AdditiveAttention",),
    cites="Bahdanau, Cho & Bengio 2015",
)
def additive(rng):
    r"""$a_{ij} = \mathrm{softmax}_j(\mathrm{MLP}(z_{i-1}, \zeta_j))$, with
    $v^\top \tanh(W z_{i-1} + M \zeta_j)$ for the network, and $c_i = \sum_{j=1}^m a_{ij} \zeta_j$:
    a point in the convex hull of the $\zeta_j$, independent of their order.
    """
    (W, M, v), layer, z, zeta = random_attention(rng)
    a = np.asarray(layer.weights(jnp.asarray(z), jnp.asarray(zeta)))
    context = lambda zeta: np.asarray(layer(jnp.asarray(z), jnp.asarray(zeta)))
    order = rng.permutation(7)
    hull = linprog(
        np.zeros(7), A_eq=np.vstack([zeta.T, np.ones(7)]), b_eq=np.append(context(zeta), 1)
    )
    outside = linprog(
        np.zeros(7), A_eq=np.vstack([zeta.T, np.ones(7)]), b_eq=np.append(9 + zeta.max(axis=0), 1)
    )
    constant_score = AdditiveAttention(layer.W, layer.M, jnp.zeros(6))
    theta, back = tree.ravel((layer, jnp.asarray(z), jnp.asarray(zeta)))
    c = jnp.asarray(rng.normal(size=4))

    def value(theta):
        layer, z, zeta = back(theta)
        return jnp.vdot(c, layer(z, zeta))

    return Verdict(
        close(
            "a, against the formula", a, softmax(np.tanh(z @ W.T + zeta @ M.T) @ v), tolerance=1e-14
        ),
        close("c, against the formula", context(zeta), a @ zeta, tolerance=1e-14),
        close("a sums to 1", a.sum(), 1.0, tolerance=1e-14),
        at_least("smallest entry of a", a.min(), 0.0),
        equal(
            "c is in the convex hull: status of a linear programme (0: feasible)", hull.status, 0
        ),
        refuted(
            equal("a distant point is in the convex hull: status (0: feasible)", outside.status, 0)
        ),
        close(
            "c after a permutation of the ζ_j", context(zeta[order]), context(zeta), tolerance=1e-14
        ),
        close(
            "a after a permutation of the ζ_j",
            layer.weights(jnp.asarray(z), jnp.asarray(zeta[order])),
            a[order],
            tolerance=1e-14,
        ),
        close(
            "constant scores: c is the mean",
            constant_score(jnp.asarray(z), jnp.asarray(zeta)),
            zeta.mean(axis=0),
            tolerance=1e-14,
        ),
        close_derivative(
            f"all {theta.size} derivatives", jax.grad(value)(theta), jacobian(value, theta)
        ),
    )


@erratum(
    "5.3-bahdanau",
    title="The sum goes over the source",
    printed=r"c_t = \sum_{i=1}^{T} a_{ti} \zeta_i",
    corrected=r"c_t = \sum_{i=1}^{m} a_{ti} \zeta_i",
    of=("layers.AdditiveAttention",),
    slip=True,
)
def over_the_source(rng):
    r"""The source is $x_1, \dots, x_m$ in this section; a sum to $T$, the length of another
    sequence, leaves out a part of it or exceeds it."""
    T = 4
    _, layer, z, zeta = random_attention(rng)
    a = np.asarray(layer.weights(jnp.asarray(z), jnp.asarray(zeta)))
    context = layer(jnp.asarray(z), jnp.asarray(zeta))
    return Verdict(
        close("the context, source of length 7", context, a @ zeta, tolerance=1e-13),
        close("its weights sum to 1", a.sum(), 1.0, tolerance=1e-13),
        printed=[
            close(
                "the context, source of length 7, target of length 4",
                context,
                a[:T] @ zeta[:T],
                tolerance=1e-13,
            ),
            close("its weights sum to 1", a[:T].sum(), 1.0, tolerance=1e-13),
        ],
    )


def copy_task(key, count, *, size, length, reverse=False):
    """Random tokens to copy or to reverse: (source, target inputs with a start token), labels."""
    source = jr.randint(key, (count, length), 0, size)
    target = source[:, ::-1] if reverse else source
    return (source, jnp.concatenate([jnp.full((count, 1), size), target[:, :-1]], axis=1)), target


def train_model(key, *, attend=None, **task):
    """A trained model with cells of 16 units, and test examples."""
    key_model, key_data, key_test = jr.split(key, 3)
    size = task["size"]
    model = models.EncoderDecoder.init(
        size, size + 1, 8, 16, attention_width=attend, cell=GRU.init, key=key_model
    )
    model = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    data = copy_task(key_data, STEPS * BATCH, **task)
    batches = jax.tree.map(lambda a: a.reshape(STEPS, BATCH, -1), data)
    rate = optax.cosine_decay_schedule(0.01, STEPS)
    descent = train.descend(
        train.token_cross_entropy, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    )
    return run(descent, model, batches, key=key)[0].model, copy_task(key_test, 300, **task)


@claim(
    "5.3-bottleneck",
    title="The bottleneck of a single state",
    kind="experiment",
    of=("models.EncoderDecoder",),
    cites="Cho et al. 2014; Bahdanau, Cho & Bengio 2015",
)
def bottleneck(key):
    r"""The state $\zeta$ has the same size for long and for short sources:
    $\partial \zeta / \partial x_{1:m}$ has at most the rank $\dim \zeta$. So the accuracy of
    copying a sequence through $\zeta$ decreases with its length; with attention it stays high.
    """
    lengths = (3, 6, 12)

    def copy_accuracy(key, length, attend):
        model, test = train_model(key, size=6, length=length, attend=attend)
        return 1 - train.sequence_error_rate(model, test)

    compiled = jax.jit(copy_accuracy, static_argnums=(1, 2))
    accuracies = [float(compiled(key, length, None)) for length in lengths]
    with_attention = float(compiled(key, lengths[-1], 16))
    small_model = models.EncoderDecoder.init(5, 5, 4, 6, cell=GRU.init, key=key)
    encode = lambda xs: small_model.encoder.scan(xs, jnp.ones(len(xs), bool))[0][1]
    ranks = [
        np.linalg.matrix_rank(
            np.asarray(jax.jacfwd(encode)(jr.normal(key, (length, 4)))).reshape(6, -1)
        )
        for length in (1, 2, 5)
    ]
    return Verdict(
        equal("rank of ∂ζ/∂x, dim ζ = 6, 1, 2 and 5 inputs of 4 numbers", ranks, [4, 6, 6]),
        decreasing("share of sequences copied without error: lengths 3, 6 and 12", accuracies),
        at_least("share copied without error, length 3", accuracies[0], 0.9),
        at_most("share copied without error, length 12", accuracies[-1], 0.3),
        at_least("share copied without error, length 12, with attention", with_attention, 0.95),
        figure=Panel(
            "length",
            "share copied without error",
            lines={"one state": (lengths, accuracies)},
            points={"attention": (lengths[-1:], [with_attention])},
        ),
    )


@claim(
    "5.3-alignment",
    title="Learnt attention weights align target and source",
    kind="experiment",
    of=("models.EncoderDecoder", "train.token_error_rate"),
    cites="Bahdanau, Cho & Bengio 2015",
)
def alignment(key):
    r"""The learnt weights $a_{ij}$ align target and source: if the task is to reverse the source,
    the largest $a_{ij}$ is at $j = m + 1 - i$.
    """
    length = 8

    def learnt_alignment(key):
        model, ((source, target), labels) = train_model(
            key, size=30, length=length, attend=16, reverse=True
        )
        accuracy = 1 - train.token_error_rate(model, ((source, target), labels))
        return jax.vmap(model.alignment)(source, target), accuracy

    weights, accuracy = jax.jit(learnt_alignment)(key)
    a = np.asarray(weights)
    expected = np.arange(length)[::-1]
    positions = np.arange(1, length + 1)
    return Verdict(
        at_least("token accuracy", float(accuracy), 0.95),
        at_least(
            "share of i with the largest a_ij at j = m + 1 − i",
            np.mean(a.argmax(axis=2) == expected),
            0.9,
        ),
        refuted(
            at_least(
                "share with the largest at j = i", np.mean(a.argmax(axis=2) == expected[::-1]), 0.9
            )
        ),
        close("a sums to 1", a.sum(axis=2), 1.0, tolerance=1e-5),
        figure=Panel(
            "j",
            "a_ij, mean over sources",
            lines={f"i = {i}": (positions, a.mean(axis=0)[i - 1]) for i in (1, 3, 5, 7)},
        ),
    )
