"""The kernels for long sequences against the tables they do not make."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.layers import (
    ALL,
    CAUSAL,
    ALiBi,
    Attention,
    Mask,
    attend,
    block_pairs,
    hierarchical_attention,
    linear_attention,
    sparse_attention,
)
from thetax.layers.attention import long_attention
from thetax.models import Trunk

PAIRS = block_pairs(5, window=1, everywhere=1, random=1, seed=3)
KERNELS = {
    "linear": linear_attention,
    "sparse": sparse_attention(PAIRS, 3),
    "hierarchical": hierarchical_attention(3),
}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=list(KERNELS))


def parts(t=13, s=None, h=4, g=2, d=2, e=3):
    s = t if s is None else s
    return normal(0, t, h, d), normal(1, s, g, d), normal(2, s, g, e)


def both(kernel, mask, q, k, v):
    """The sum of the outputs under fixed weights, and its gradients."""
    weights = normal(3, *q.shape[:2], v.shape[2])
    return jax.jit(jax.value_and_grad(lambda qkv: jnp.vdot(kernel(*qkv, mask), weights)))((q, k, v))


def computed(kernel, *parts):
    """Compiled as one, which is faster than part by part."""
    return jax.jit(lambda *parts: kernel(*parts))(*parts)


def length(n):
    return jnp.array(n, jnp.int32)


# Linear


def quadratic(q, k, v, mask):
    """The other order of the products: a table of all pairs."""
    phi = lambda x: jnp.where(x > 0, x + 1, jnp.exp(x))
    k, v = (jnp.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    A = jnp.where(mask.table(len(q), len(k))[None], jnp.einsum("ihd,jhd->hij", phi(q), phi(k)), 0)
    z = A.sum(axis=2, keepdims=True)
    return jnp.einsum("hij,jhe->ihe", A / jnp.where(z > 0, z, 1), v)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [64, 2])
@pytest.mark.parametrize(("t", "s"), [(13, 13), (13, 5), (5, 13)])
@pytest.mark.usefixtures("x64", "strict")
def test_linear_attention_is_the_table(t, s, chunk, monkeypatch):
    """Both orders of the products; causal, the recurrence over chunks; values and gradients."""
    monkeypatch.setattr(long_attention, "CHUNK", chunk)
    for mask in (ALL, Mask(length=length(4)), CAUSAL, Mask(after=0, length=length(4))):
        found = both(linear_attention, mask, *parts(t, s))
        expected = both(quadratic, mask, *parts(t, s))
        assert close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_linear_attention_is_a_recurrence():
    """Token by token: a matrix and a vector are all that is kept."""
    q, k, v = (np.asarray(a[:, 0]) for a in parts(h=1, g=1))
    phi = lambda x: np.where(x > 0, x + 1, np.exp(x))
    S = np.zeros((2, 3))
    z = np.zeros(2)
    out = []
    for q_i, k_i, v_i in zip(phi(q), phi(k), v):
        S = S + np.outer(k_i, v_i)
        z = z + k_i
        out.append(q_i @ S / (q_i @ z))
    found = computed(linear_attention, *parts(h=1, g=1), CAUSAL)[:, 0]
    np.testing.assert_allclose(found, out, atol=1e-10)


@pytest.mark.slow
def test_features_that_all_but_vanish():
    """exp(-200) is no float32: a query's own factor cancels, and keys without features give 0."""
    q, k, v = parts()
    shifted = computed(linear_attention, q - 200, k, v)
    expected = computed(linear_attention, q - 50, k, v)
    np.testing.assert_allclose(shifted, expected, rtol=1e-4, atol=1e-5)
    assert shifted.any()
    for mask in (ALL, CAUSAL):
        _, slopes = both(linear_attention, mask, q - 200, k - 200, v)
        assert all(np.isfinite(slope).all() for slope in slopes)


# Sparse


def dense(pairs, size, q, k, v, mask):
    """`attend` with a table that forbids all other blocks."""
    t = len(q)
    s = len(k)
    links = np.zeros((-(-t // size), -(-s // size)), bool)
    for i, j in pairs:
        if i < links.shape[0] and j < links.shape[1]:
            links[i, j] = True
    whole = np.kron(links, np.ones((size, size), bool))[:t, :s]
    return attend(
        q, k, v, Mask(there=jnp.asarray(whole) & mask.table(t, s), fade=mask.fade, first=mask.first)
    )


SPARSE_MASKS = {
    "all": lambda: ALL,
    "causal": lambda: CAUSAL,
    "length": lambda: Mask(length=length(7)),
    "window": lambda: Mask(before=2, after=4),
    "keys": lambda: Mask(there=jnp.arange(13) % 2 == 0),
    "pairs": lambda: Mask(there=jnp.asarray(np.random.default_rng(0).random((13, 13)) < 0.5)),
    "fade": lambda: Mask(after=0, fade=jnp.array([1.0, 0.5, 0.25, 0.1])),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", SPARSE_MASKS.values(), ids=list(SPARSE_MASKS))
@pytest.mark.usefixtures("x64", "strict")
def test_sparse_attention_is_dense_with_a_mask(make):
    kernel = sparse_attention(PAIRS, 3)
    table = partial(dense, PAIRS, 3)
    assert close(
        both(kernel, make(), *parts()), both(table, make(), *parts()), rtol=1e-10, atol=1e-12
    )


@pytest.mark.usefixtures("x64")
def test_sequences_of_two_lengths_and_blocks_without_links():
    pairs = ((0, 1), (2, 0), (4, 4))
    for t, s in ((7, 9), (13, 15)):
        found = computed(sparse_attention(pairs, 3), *parts(t, s))
        expected = computed(partial(dense, pairs, 3), *parts(t, s), ALL)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert not found[3:6].any()


def test_all_pairs_are_full_attention():
    for pairs, size in (
        (block_pairs(5, window=4), 3),
        (block_pairs(13, everywhere=13), 1),
        (((0, 0),), 13),
    ):
        np.testing.assert_allclose(
            computed(sparse_attention(pairs, size), *parts()), attend(*parts()), atol=1e-6
        )


def test_how_many_pairs():
    """The band, what is seen everywhere, and the random ones, counted one by one and by the
    formula.
    """
    for n, w, g, r in itertools.product((6, 9), (0, 1, 2), (0, 1, 3), (0, 1)):
        pairs = block_pairs(n, window=w, everywhere=g, random=r)
        m = n - g
        plain = n * n - m * m + m * (2 * w + 1) - w * (w + 1)
        counted = sum(abs(i - j) <= w or min(i, j) < g for i in range(n) for j in range(n))
        free = [n - sum(abs(i - j) <= w or j < g for j in range(n)) for i in range(g, n)]
        assert counted == plain
        assert len(set(pairs)) == len(pairs) == plain + sum(min(r, f) for f in free)
        assert list(pairs) == sorted(pairs)
    assert block_pairs(9, random=2, seed=1) != block_pairs(9, random=2, seed=2)
    assert block_pairs(9, random=2, seed=1) == block_pairs(9, random=2, seed=1)


@pytest.mark.slow
def test_two_layers_reach_everything():
    """By way of the block that all see; without it a window is not enough."""
    reach = lambda pairs: np.linalg.matrix_power(
        np.array([[(i, j) in pairs for j in range(8)] for i in range(8)], int), 2
    )
    assert (reach(block_pairs(8, everywhere=1)) > 0).all()
    assert not (reach(block_pairs(8, window=2)) > 0).all()
    layer = Attention.init(
        4, 2, kernel=sparse_attention(block_pairs(4, everywhere=1), 2), key=jr.key(0)
    )
    slope = jax.jacobian(lambda x: layer(layer(x))[7])(normal(0, 8, 4))
    assert (jnp.abs(slope).sum(axis=(0, 2)) > 0).all()


# Hierarchical


def by_blocks(q, k, v, mask, size):
    """Token by token and block by block, for one head."""
    q, k, v = (np.asarray(a[:, 0], float) for a in (q, k, v))
    t, d = q.shape
    n = t if mask.length is None else int(mask.length)
    causal = mask.after == 0
    out = np.zeros((t, v.shape[1]))

    def mean_of(query, places, keys, values):
        if not places:
            return 0.0
        e = np.exp([query @ keys[j] / np.sqrt(d) for j in places])
        return sum(a * values[j] for a, j in zip(e / e.sum(), places))

    blocks = [range(b, min(b + size, n)) for b in range(0, n, size)]
    K, V = ([a[list(block)].mean(axis=0) for block in blocks] for a in (k, v))
    for c, block in enumerate(blocks):
        others = [o for o in range(len(blocks)) if (o < c if causal else o != c)]
        far = mean_of(q[block[0]] if causal else q[list(block)].mean(axis=0), others, K, V)
        for i in block:
            out[i] = far + mean_of(q[i], [j for j in block if not causal or j <= i], k, v)
    return out[:n]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 13])
@pytest.mark.usefixtures("x64", "strict")
def test_hierarchical_attention_block_by_block(size):
    q, k, v = parts(h=1, g=1)
    for mask in (ALL, CAUSAL, Mask(length=length(8)), Mask(after=0, length=length(9))):
        expected = by_blocks(q, k, v, mask, size)
        found = computed(hierarchical_attention(size), q, k, v, mask)[: len(expected), 0]
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_one_block_is_full_attention():
    for size, mask in itertools.product((13, 20), (ALL, CAUSAL, Mask(length=length(8)))):
        assert close(
            both(hierarchical_attention(size), mask, *parts()),
            both(attend, mask, *parts()),
            rtol=1e-10,
        )


# All of them


def flops(kernel, t):
    shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    compiled = jax.jit(kernel).lower(shape(t, 1, 8), shape(t, 1, 8), shape(t, 1, 8)).compile()
    return compiled.cost_analysis()["flops"]


@pytest.mark.slow
def test_the_work_of_hierarchical_attention():
    """T b + (T/b)² pairs: a block longer there are more within, a block shorter more between."""
    count = lambda t, b: t * b + (t / b) ** 2
    work = {
        (t, b): flops(hierarchical_attention(b), t)
        for t, b in ((1024, 128), (2048, 128), (1024, 8), (1024, 32))
    }
    for one, two in itertools.combinations(work, 2):
        assert work[one] / work[two] == pytest.approx(count(*one) / count(*two), rel=0.5)
    assert work[1024, 32] < flops(attend, 1024) / 8


def spent(kernel, t, mask):
    shape = jax.ShapeDtypeStruct((t, 1, 8), jnp.float32)
    f = jax.value_and_grad(lambda *qkv: jnp.square(kernel(*qkv, mask)).sum(), argnums=(0, 1, 2))
    return jax.jit(f).lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mask", [ALL, CAUSAL], ids=["all", "causal"])
@pytest.mark.parametrize("name", KERNELS)
def test_memory_grows_with_the_length(name, mask):
    """On the way back too: no table of 4096 by 4096, and for linear attention no state of each
    token.
    """
    make = {
        "linear": lambda t: linear_attention,
        "sparse": lambda t: sparse_attention(block_pairs(t // 32, window=1, everywhere=1), 32),
        "hierarchical": lambda t: hierarchical_attention(32),
    }[name]
    one = spent(make(4096), 4096, mask)
    two = spent(make(8192), 8192, mask)
    assert one < 4 * 4096**2 / 4
    assert two < 2.5 * one
    if name == "linear":
        assert one < 4 * 4096 * 8 * 8 * 2


@kernels
@pytest.mark.parametrize("after", [None, 0])
def test_padding_changes_nothing(kernel, after):
    """Neither what stands in it nor how much there is."""
    q, k, v = parts(13)
    mask = Mask(after=after, length=length(8))
    f = jax.jit(lambda *parts: kernel(*parts))
    found = f(q, k, v, mask)[:8]
    spoiled = [a.at[8:].set(1e3) for a in (q, k, v)]
    np.testing.assert_allclose(f(*spoiled, mask)[:8], found, atol=1e-6)
    short = f(q[:8], k[:8], v[:8], Mask(after=after))
    np.testing.assert_allclose(short, found, atol=1e-6)


@kernels
def test_nothing_there(kernel):
    value, slopes = both(kernel, Mask(length=length(0)), *parts())
    assert value == 0
    assert all(np.isfinite(slope).all() for slope in slopes)


@kernels
def test_the_future_changes_no_bit(kernel):
    """On a CPU; a GPU adds up the blocks of a segment in any order, so two equal calls may differ
    in the last bit.
    """
    q, k, v = parts()
    f = jax.jit(lambda *qkv: kernel(*qkv, CAUSAL))
    before = f(q, k, v)
    after = f(*(a.at[7].add(1e3) for a in (q, k, v)))
    alike = same_bits if jax.default_backend() == "cpu" else close
    assert alike(before[:7], after[:7])
    assert (before[7] != after[7]).any()


@kernels
def test_a_batch_is_its_items(kernel):
    q, k, v = (jnp.stack([a, 2 * a]) for a in parts())
    lengths = jnp.array([13, 5], jnp.int32)
    f = lambda q, k, v, n: kernel(q, k, v, Mask(after=0, length=n))
    batch = jax.jit(jax.vmap(f))(q, k, v, lengths)
    for at in range(2):
        np.testing.assert_allclose(
            batch[at], computed(f, q[at], k[at], v[at], lengths[at]), atol=1e-6
        )


@kernels
def test_half_precision(kernel):
    q, k, v = (a.astype(jnp.bfloat16) for a in parts())
    found = computed(kernel, q, k, v, CAUSAL)
    assert found.dtype == jnp.bfloat16
    wide = computed(kernel, *(a.astype(jnp.float32) for a in (q, k, v)), CAUSAL)
    np.testing.assert_allclose(found.astype(jnp.float32), wide, atol=0.05)


@kernels
def test_equal_kernels_are_one_program(kernel):
    """They are static parts of a model: what is made twice must not be compiled twice."""
    twin = {
        "Sparse": lambda: sparse_attention(list(reversed(PAIRS)), 3),
        "Hierarchical": lambda: hierarchical_attention(3),
        "function": lambda: linear_attention,
    }[type(kernel).__name__]()
    assert twin == kernel
    assert hash(twin) == hash(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "sparse"])
@pytest.mark.usefixtures("x64", "strict")
def test_going_on_from_a_past(name):
    """Keys and values are kept, queries come later: the same as all at once."""
    trunk = Trunk.init(2, 4, 2, 4, kernel=KERNELS[name], key=jr.key(0))
    x = normal(0, 9, 4)
    whole = trunk(x, mask=CAUSAL)
    past = trunk.start(12)
    found = []
    for part in (x[:4], x[4:5], x[5:]):
        y, past = trunk.extend(part, past)
        found.append(y)
    np.testing.assert_allclose(jnp.concatenate(found), whole, atol=1e-10)


def test_a_table_of_pairs_from_a_past():
    q, k, v = parts(4, 13)
    there = jnp.asarray(np.random.default_rng(1).random((4, 13)) < 0.7)
    mask = Mask(there=there, first=length(6))
    links = np.zeros((13, 13), bool)
    links[6:10] = there
    whole = attend(jnp.zeros((13, 4, 2)).at[6:10].set(q), k, v, Mask(there=jnp.asarray(links)))
    found = computed(sparse_attention(block_pairs(5, window=4), 3), q, k, v, mask)
    np.testing.assert_allclose(found, whole[6:10], atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "hierarchical"])
@pytest.mark.parametrize(
    "mask",
    [Mask(before=2), Mask(after=1), Mask(there=jnp.ones(13, bool)), Mask(fade=jnp.ones(4))],
    ids=["before", "after", "there", "fade"],
)
def test_what_cannot_be_honoured_is_refused(name, mask):
    with pytest.raises(
        ValueError, match=rf"{name}_attention: it has no scores of single pairs.* Use attend"
    ):
        KERNELS[name](*parts(), mask)


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    for name, kernel in KERNELS.items():
        with pytest.raises(ValueError, match=rf"{name}_attention: .*must have one size"):
            kernel(*parts()[:1], jnp.ones((13, 2, 3)), jnp.ones((13, 2, 3)))
    with pytest.raises(
        ValueError,
        match="the pairs are of 5 by 5 blocks of 3, but 16 queries and 13 keys are 6 by 5",
    ):
        KERNELS["sparse"](*parts(16, 13))
    with pytest.raises(ValueError, match="got 5 queries and 13 keys"):
        KERNELS["hierarchical"](*parts(5, 13))
    with pytest.raises(ValueError, match="of a past"):
        KERNELS["hierarchical"](*parts(), Mask(after=0, first=length(0)))
    with pytest.raises(ValueError, match="no room for 13 queries among 5 keys"):
        linear_attention(*parts(13, 5), Mask(first=length(0)))
    with pytest.raises(ValueError, match="a size of at least 1; got 1 pairs and size=0"):
        sparse_attention([(0, 0)], 0)
    with pytest.raises(ValueError, match="counted from 0"):
        sparse_attention([(0, -1)], 2)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        hierarchical_attention(0)
    with pytest.raises(ValueError, match="got blocks=3, window=-1"):
        block_pairs(3, window=-1)


def test_alibi_needs_scores():
    layer = Attention.init(4, 2, relative=ALiBi(), kernel=linear_attention, key=jr.key(0))
    with pytest.raises(ValueError, match="fade given"):
        layer(jnp.ones((3, 4)))
