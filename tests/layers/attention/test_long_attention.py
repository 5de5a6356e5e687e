"""The kernels for long sequences against the full tables of scores."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.layers import (
    CAUSAL,
    FULL,
    ALiBi,
    Attention,
    Mask,
    block_pairs,
    dot_product_attention,
    hierarchical_attention,
    linear_attention,
    sparse_attention,
)
from thetax.layers.attention import long_attention
from thetax.models import Trunk

PAIRS = block_pairs(5, window=1, global_blocks=1, random_blocks=1, seed=3)
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
    """The sum of the outputs with fixed weights, and its gradients."""
    weights = normal(3, *q.shape[:2], v.shape[2])
    return jax.jit(jax.value_and_grad(lambda qkv: jnp.vdot(kernel(*qkv, mask), weights)))((q, k, v))


def computed(kernel, *parts):
    """Compiled together, which is faster than separately."""
    return jax.jit(lambda *parts: kernel(*parts))(*parts)


def length(n):
    return jnp.array(n, jnp.int32)


# Linear


def quadratic(q, k, v, mask):
    """Linear attention computed from the table of all pairs."""
    phi = lambda x: jnp.where(x > 0, x + 1, jnp.exp(x))
    k, v = (jnp.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    A = jnp.where(mask.table(len(q), len(k))[None], jnp.einsum("ihd,jhd->hij", phi(q), phi(k)), 0)
    z = A.sum(axis=2, keepdims=True)
    return jnp.einsum("hij,jhe->ihe", A / jnp.where(z > 0, z, 1), v)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [64, 2])
@pytest.mark.parametrize(("t", "s"), [(13, 13), (13, 5), (5, 13)])
@pytest.mark.usefixtures("x64", "strict")
def test_linear_attention_equals_the_quadratic_form(t, s, chunk, monkeypatch):
    """Values and gradients, without a mask and causal (the recurrence over chunks)."""
    monkeypatch.setattr(long_attention, "MIN_CHUNK_SIZE", chunk)
    for mask in (FULL, Mask(length=length(4)), CAUSAL, Mask(after=0, length=length(4))):
        found = both(linear_attention, mask, *parts(t, s))
        expected = both(quadratic, mask, *parts(t, s))
        assert close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_linear_attention_is_a_recurrence():
    """Token by token, with a matrix and a vector as the state."""
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
def test_underflowing_features():
    """exp(-200) underflows in float32: the scale of a query cancels, and keys without features give
    0.
    """
    q, k, v = parts()
    shifted = computed(linear_attention, q - 200, k, v)
    expected = computed(linear_attention, q - 50, k, v)
    np.testing.assert_allclose(shifted, expected, rtol=1e-4, atol=1e-5)
    assert shifted.any()
    for mask in (FULL, CAUSAL):
        _, slopes = both(linear_attention, mask, q - 200, k - 200, v)
        assert all(np.isfinite(slope).all() for slope in slopes)


# Sparse


def dense(pairs, size, q, k, v, mask):
    """`dot_product_attention` with a mask that forbids all other blocks."""
    t = len(q)
    s = len(k)
    links = np.zeros((-(-t // size), -(-s // size)), bool)
    for i, j in pairs:
        if i < links.shape[0] and j < links.shape[1]:
            links[i, j] = True
    whole = np.kron(links, np.ones((size, size), bool))[:t, :s]
    return dot_product_attention(
        q,
        k,
        v,
        Mask(allowed=jnp.asarray(whole) & mask.table(t, s), slopes=mask.slopes, offset=mask.offset),
    )


SPARSE_MASKS = {
    "all": lambda: FULL,
    "causal": lambda: CAUSAL,
    "length": lambda: Mask(length=length(7)),
    "window": lambda: Mask(before=2, after=4),
    "keys": lambda: Mask(allowed=jnp.arange(13) % 2 == 0),
    "pairs": lambda: Mask(allowed=jnp.asarray(np.random.default_rng(0).random((13, 13)) < 0.5)),
    "slopes": lambda: Mask(after=0, slopes=jnp.array([1.0, 0.5, 0.25, 0.1])),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", SPARSE_MASKS.values(), ids=list(SPARSE_MASKS))
@pytest.mark.usefixtures("x64", "strict")
def test_sparse_attention_equals_masked_dense_attention(make):
    kernel = sparse_attention(PAIRS, 3)
    table = partial(dense, PAIRS, 3)
    assert close(
        both(kernel, make(), *parts()), both(table, make(), *parts()), rtol=1e-10, atol=1e-12
    )


@pytest.mark.usefixtures("x64")
def test_unequal_lengths_and_blocks_without_pairs():
    pairs = ((0, 1), (2, 0), (4, 4))
    for t, s in ((7, 9), (13, 15)):
        found = computed(sparse_attention(pairs, 3), *parts(t, s))
        expected = computed(partial(dense, pairs, 3), *parts(t, s), FULL)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert not found[3:6].any()


def test_all_pairs_are_full_attention():
    for pairs, size in (
        (block_pairs(5, window=4), 3),
        (block_pairs(13, global_blocks=13), 1),
        (((0, 0),), 13),
    ):
        np.testing.assert_allclose(
            computed(sparse_attention(pairs, size), *parts()),
            dot_product_attention(*parts()),
            atol=1e-6,
        )


def test_number_of_pairs():
    """The window, the global blocks and the random blocks, counted and by the formula."""
    for n, w, g, r in itertools.product((6, 9), (0, 1, 2), (0, 1, 3), (0, 1)):
        pairs = block_pairs(n, window=w, global_blocks=g, random_blocks=r)
        m = n - g
        plain = n * n - m * m + m * (2 * w + 1) - w * (w + 1)
        counted = sum(abs(i - j) <= w or min(i, j) < g for i in range(n) for j in range(n))
        free = [n - sum(abs(i - j) <= w or j < g for j in range(n)) for i in range(g, n)]
        assert counted == plain
        assert len(set(pairs)) == len(pairs) == plain + sum(min(r, f) for f in free)
        assert list(pairs) == sorted(pairs)
    assert block_pairs(9, random_blocks=2, seed=1) != block_pairs(9, random_blocks=2, seed=2)
    assert block_pairs(9, random_blocks=2, seed=1) == block_pairs(9, random_blocks=2, seed=1)


@pytest.mark.slow
def test_two_layers_connect_all_tokens():
    """Through the global block; a window alone does not."""
    reach = lambda pairs: np.linalg.matrix_power(
        np.array([[(i, j) in pairs for j in range(8)] for i in range(8)], int), 2
    )
    assert (reach(block_pairs(8, global_blocks=1)) > 0).all()
    assert not (reach(block_pairs(8, window=2)) > 0).all()
    layer = Attention.init(
        4, 2, kernel=sparse_attention(block_pairs(4, global_blocks=1), 2), key=jr.key(0)
    )
    slope = jax.jacobian(lambda x: layer(layer(x))[7])(normal(0, 8, 4))
    assert (jnp.abs(slope).sum(axis=(0, 2)) > 0).all()


# Hierarchical


def by_blocks(q, k, v, mask, size):
    """Hierarchical attention token by token and block by block, for one head."""
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
    for mask in (FULL, CAUSAL, Mask(length=length(8)), Mask(after=0, length=length(9))):
        expected = by_blocks(q, k, v, mask, size)
        found = computed(hierarchical_attention(size), q, k, v, mask)[: len(expected), 0]
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_one_block_is_full_attention():
    for size, mask in itertools.product((13, 20), (FULL, CAUSAL, Mask(length=length(8)))):
        assert close(
            both(hierarchical_attention(size), mask, *parts()),
            both(dot_product_attention, mask, *parts()),
            rtol=1e-10,
        )


# All of them


def flops(kernel, t):
    shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    compiled = jax.jit(kernel).lower(shape(t, 1, 8), shape(t, 1, 8), shape(t, 1, 8)).compile()
    return compiled.cost_analysis()["flops"]


@pytest.mark.slow
def test_flops_of_hierarchical_attention():
    """T b + (T/b)² pairs: larger blocks have more pairs within, smaller blocks more between
    them.
    """
    count = lambda t, b: t * b + (t / b) ** 2
    work = {
        (t, b): flops(hierarchical_attention(b), t)
        for t, b in ((1024, 128), (2048, 128), (1024, 8), (1024, 32))
    }
    for one, two in itertools.combinations(work, 2):
        assert work[one] / work[two] == pytest.approx(count(*one) / count(*two), rel=0.5)
    assert work[1024, 32] < flops(dot_product_attention, 1024) / 8


def compiled_memory(kernel, t, mask):
    shape = jax.ShapeDtypeStruct((t, 1, 8), jnp.float32)
    f = jax.value_and_grad(lambda *qkv: jnp.square(kernel(*qkv, mask)).sum(), argnums=(0, 1, 2))
    return jax.jit(f).lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mask", [FULL, CAUSAL], ids=["all", "causal"])
@pytest.mark.parametrize("name", KERNELS)
def test_memory_is_linear_in_the_length(name, mask):
    """Also in the backward pass: no table of 4096 by 4096, and no per-token states of linear
    attention.
    """
    make = {
        "linear": lambda t: linear_attention,
        "sparse": lambda t: sparse_attention(block_pairs(t // 32, window=1, global_blocks=1), 32),
        "hierarchical": lambda t: hierarchical_attention(32),
    }[name]
    one = compiled_memory(make(4096), 4096, mask)
    two = compiled_memory(make(8192), 8192, mask)
    assert one < 4 * 4096**2 / 4
    assert two < 2.5 * one
    if name == "linear":
        assert one < 4 * 4096 * 8 * 8 * 2


@kernels
@pytest.mark.parametrize("after", [None, 0])
def test_padding_is_ignored(kernel, after):
    """Neither its content nor its length matters."""
    q, k, v = parts(13)
    mask = Mask(after=after, length=length(8))
    f = jax.jit(lambda *parts: kernel(*parts))
    found = f(q, k, v, mask)[:8]
    spoiled = [a.at[8:].set(1e3) for a in (q, k, v)]
    np.testing.assert_allclose(f(*spoiled, mask)[:8], found, atol=1e-6)
    short = f(q[:8], k[:8], v[:8], Mask(after=after))
    np.testing.assert_allclose(short, found, atol=1e-6)


@kernels
def test_fully_masked_keys(kernel):
    value, slopes = both(kernel, Mask(length=length(0)), *parts())
    assert value == 0
    assert all(np.isfinite(slope).all() for slope in slopes)


@kernels
def test_causal_mask_hides_the_future(kernel):
    """On a CPU; a GPU adds the blocks of a segment in any order, so equal calls may differ in the
    last bit.
    """
    q, k, v = parts()
    f = jax.jit(lambda *qkv: kernel(*qkv, CAUSAL))
    before = f(q, k, v)
    after = f(*(a.at[7].add(1e3) for a in (q, k, v)))
    alike = same_bits if jax.default_backend() == "cpu" else close
    assert alike(before[:7], after[:7])
    assert (before[7] != after[7]).any()


@kernels
def test_batch_equals_single_calls(kernel):
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
def test_equal_kernels_share_one_compilation(kernel):
    """Kernels are static fields of a model: equal kernels must compare equal, or they are compiled
    twice.
    """
    twin = {
        "SparseAttention": lambda: sparse_attention(list(reversed(PAIRS)), 3),
        "HierarchicalAttention": lambda: hierarchical_attention(3),
        "function": lambda: linear_attention,
    }[type(kernel).__name__]()
    assert twin == kernel
    assert hash(twin) == hash(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "sparse"])
@pytest.mark.usefixtures("x64", "strict")
def test_kv_cache(name):
    """Keys and values from a cache, queries one by one: the same as the full sequence."""
    trunk = Trunk.init(2, 4, 2, 4, kernel=KERNELS[name], key=jr.key(0))
    x = normal(0, 9, 4)
    whole = trunk(x, mask=CAUSAL)
    past = trunk.empty_cache(12)
    found = []
    for part in (x[:4], x[4:5], x[5:]):
        y, past = trunk.extend(part, past)
        found.append(y)
    np.testing.assert_allclose(jnp.concatenate(found), whole, atol=1e-10)


def test_mask_table_with_a_kv_cache():
    q, k, v = parts(4, 13)
    there = jnp.asarray(np.random.default_rng(1).random((4, 13)) < 0.7)
    mask = Mask(allowed=there, offset=length(6))
    links = np.zeros((13, 13), bool)
    links[6:10] = there
    whole = dot_product_attention(
        jnp.zeros((13, 4, 2)).at[6:10].set(q), k, v, Mask(allowed=jnp.asarray(links))
    )
    found = computed(sparse_attention(block_pairs(5, window=4), 3), q, k, v, mask)
    np.testing.assert_allclose(found, whole[6:10], atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "hierarchical"])
@pytest.mark.parametrize(
    "mask",
    [Mask(before=2), Mask(after=1), Mask(allowed=jnp.ones(13, bool)), Mask(slopes=jnp.ones(4))],
    ids=["before", "after", "allowed", "slopes"],
)
def test_unsupported_masks_raise(name, mask):
    with pytest.raises(
        ValueError,
        match=rf"{name}_attention: .*single pairs have no scores.* Use dot_product_attention",
    ):
        KERNELS[name](*parts(), mask)


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    for name, kernel in KERNELS.items():
        with pytest.raises(ValueError, match=rf"{name}_attention: .*must have the same width"):
            kernel(*parts()[:1], jnp.ones((13, 2, 3)), jnp.ones((13, 2, 3)))
    with pytest.raises(
        ValueError,
        match="the pairs cover 5 by 5 blocks of 3, but 16 queries and 13 keys are 6 by 5",
    ):
        KERNELS["sparse"](*parts(16, 13))
    with pytest.raises(ValueError, match="got 5 queries and 13 keys"):
        KERNELS["hierarchical"](*parts(5, 13))
    with pytest.raises(ValueError, match="and an offset"):
        KERNELS["hierarchical"](*parts(), Mask(after=0, offset=length(0)))
    with pytest.raises(ValueError, match="must not outnumber the keys; got 13 queries and 5 keys"):
        linear_attention(*parts(13, 5), Mask(offset=length(0)))
    with pytest.raises(ValueError, match="block_size >= 1; got 1 pairs and block_size=0"):
        sparse_attention([(0, 0)], 0)
    with pytest.raises(ValueError, match="block indices >= 0"):
        sparse_attention([(0, -1)], 2)
    with pytest.raises(ValueError, match="block_size must be an integer >= 1; got 0"):
        hierarchical_attention(0)
    with pytest.raises(ValueError, match="got n_blocks=3, window=-1"):
        block_pairs(3, window=-1)


def test_alibi_needs_scores():
    layer = Attention.init(4, 2, position_encoding=ALiBi(), kernel=linear_attention, key=jr.key(0))
    with pytest.raises(ValueError, match="slopes given"):
        layer(jnp.ones((3, 4)))
