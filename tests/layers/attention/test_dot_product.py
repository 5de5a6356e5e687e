"""Dot-product attention against a triple loop in float64; its three implementations agree."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.layers import FULL, Mask, attention_weights, dot_product_attention
from thetax.layers.attention import dot_product

MASKS = {
    "all": lambda t, s, h: FULL,
    "causal": lambda t, s, h: Mask(after=0),
    "window": lambda t, s, h: Mask(before=3, after=2),
    "behind": lambda t, s, h: Mask(before=2, after=0),
    "ahead": lambda t, s, h: Mask(before=0),
    "length": lambda t, s, h: Mask(length=jnp.array(s - 2, jnp.int32)),
    "nothing": lambda t, s, h: Mask(length=jnp.array(0, jnp.int32)),
    "keys": lambda t, s, h: Mask(allowed=jnp.arange(s) % 3 != 1),
    "pairs": lambda t, s, h: Mask(
        allowed=jnp.asarray(np.random.default_rng(0).random((t, s)) < 0.3)
    ),
    "slopes": lambda t, s, h: Mask(after=0, slopes=0.5 ** jnp.arange(1.0, h + 1)),
    "later": lambda t, s, h: Mask(
        before=4, after=0, offset=jnp.array(3, jnp.int32), slopes=jnp.ones(h)
    ),
}
masks = pytest.mark.parametrize("make", MASKS.values(), ids=list(MASKS))


def parts(t=5, s=7, h=4, g=2, d=2, e=3):
    return normal(0, t, h, d), normal(1, s, g, d), normal(2, s, g, e)


def attention_by_loops(q, k, v, mask):
    """Every head, query and key separately."""
    q, k, v = (np.asarray(a, float) for a in (q, k, v))
    (t, h, d), (s, g, e) = q.shape, v.shape
    table = np.asarray(mask.table(t, s))
    out = np.zeros((t, h, e))
    A = np.zeros((h, t, s))
    first = 0 if mask.offset is None else int(mask.offset)
    for n in range(h):
        own = n * g // h
        for i in range(t):
            seen = [j for j in range(s) if table[i, j]]
            scores = [sum(q[i, n, c] * k[j, own, c] for c in range(d)) / math.sqrt(d) for j in seen]
            if mask.slopes is not None:
                scores = [
                    score - float(mask.slopes[n]) * abs(i + first - j)
                    for score, j in zip(scores, seen)
                ]
            z = sum(math.exp(score) for score in scores)
            for score, j in zip(scores, seen):
                A[n, i, j] = math.exp(score) / z
                out[i, n] += A[n, i, j] * v[j, own]
    return out, A


@masks
@pytest.mark.usefixtures("x64", "strict")
def test_equals_the_loop(make):
    q, k, v = parts()
    mask = make(5, 7, 4)
    out, A = attention_by_loops(q, k, v, mask)
    np.testing.assert_allclose(dot_product_attention(q, k, v, mask), out, atol=1e-12)
    np.testing.assert_allclose(attention_weights(q, k, mask), A, atol=1e-12)


def test_fully_masked_query_is_zero_with_finite_gradients():
    """As for a padded row: its own derivatives are 0, all others finite. NaN in a visible key
    propagates.
    """
    q, k, v = parts(t=2, s=3, h=1, g=1)
    mask = Mask(allowed=jnp.array([[True, True, False], [False, False, False]]))
    out, back = jax.vjp(jax.jit(lambda q, k, v: dot_product_attention(q, k, v, mask)), q, k, v)
    slopes = back(jnp.ones_like(out))
    assert not out[1].any()
    assert not slopes[0][1].any()
    np.testing.assert_allclose(out[0], dot_product_attention(q[:1], k[:2], v[:2])[0], atol=1e-6)
    weights = np.asarray(attention_weights(q[:1], k[:2]))[0, 0]
    np.testing.assert_allclose(
        slopes[2][:, 0], np.outer([*weights, 0], np.ones(3)), atol=1e-6
    )  # of row 0 alone
    assert all(np.isfinite(slope).all() for slope in slopes)
    broken = dot_product_attention(q.at[0].set(jnp.nan), k, v, mask)
    assert np.isnan(broken).any(axis=(1, 2)).tolist() == [True, False]


@pytest.mark.sampled(6)
@masks
@pytest.mark.usefixtures("x64", "strict")
def test_blockwise_equals_full_table(make, monkeypatch):
    """Values and gradients equal those of the full table; 37 queries are not a multiple of the
    block size.
    """
    q, k, v = parts(37, 41)
    mask = make(37, 41, 4)
    weights = normal(3, 37, 4, 3)

    def both():
        return jax.jit(
            jax.value_and_grad(
                lambda *qkv: jnp.vdot(dot_product_attention(*qkv, mask), weights), argnums=(0, 1, 2)
            )
        )(q, k, v)

    table = both()
    monkeypatch.setattr(dot_product, "MAX_PAIRS", 1)
    assert "scan" in str(jax.make_jaxpr(lambda q: dot_product_attention(q, k, v, mask))(q))
    assert close(both(), table, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True])
def test_fully_masked_row(long, monkeypatch):
    """A query without visible keys returns 0, and all gradients are finite."""
    monkeypatch.setattr(dot_product, "MAX_PAIRS", 1 if long else 2**20)
    q, k, v = parts(20, 20)
    mask = Mask(allowed=(jnp.arange(20) > 9)[:, None] & jnp.ones(20, bool)[None])
    found, slope = jax.value_and_grad(
        lambda qkv: jnp.square(dot_product_attention(*qkv, mask)).sum()
    )((q, k, v))
    assert all(np.isfinite(leaf).all() for leaf in slope)
    assert not slope[0][:10].any()
    assert slope[0][10:].any()
    assert found > 0
    assert not dot_product_attention(q, k, v, mask)[:10].any()


@pytest.mark.slow
def test_grouped_heads():
    q, k, v = parts(h=6, g=2)
    for mask in (FULL, Mask(after=0)):
        each = [jnp.repeat(a, 3, axis=1) for a in (k, v)]
        np.testing.assert_allclose(
            dot_product_attention(q, k, v, mask), dot_product_attention(q, *each, mask), atol=1e-6
        )


@pytest.mark.slow
def test_masked_keys_are_ignored():
    q, k, v = parts()
    there = jnp.array([True, False, True, True, False, False, True])
    np.testing.assert_allclose(
        dot_product_attention(q, k, v, Mask(allowed=there)),
        dot_product_attention(q, k[there], v[there]),
        atol=1e-6,
    )
    slope = jax.grad(
        lambda k, v: dot_product_attention(q, k, v, Mask(allowed=there)).sum(), argnums=(0, 1)
    )(k, v)
    assert not any(part[~there].any() for part in slope)


@pytest.mark.slow
def test_padding_content_is_ignored():
    q, k, v = parts()
    mask = Mask(length=jnp.array(4))
    spoiled = [a.at[4:].set(1e9) for a in (k, v)]
    assert same_bits(dot_product_attention(q, k, v, mask), dot_product_attention(q, *spoiled, mask))


@pytest.mark.slow
def test_causal_mask_hides_the_future():
    q, k, v = parts(7, 7)
    before = dot_product_attention(q, k, v, Mask(after=0))
    after = dot_product_attention(q.at[4].add(1), k.at[4].add(1), v.at[4].add(1), Mask(after=0))
    assert same_bits(before[:4], after[:4])
    assert (before[4:] != after[4:]).all()


@pytest.mark.slow
def test_batch_equals_single_calls():
    q, k, v = (jnp.stack([a, 2 * a, -a]) for a in parts())
    lengths = jnp.array([7, 3, 0], jnp.int32)
    batch = jax.vmap(lambda q, k, v, n: dot_product_attention(q, k, v, Mask(length=n)))(
        q, k, v, lengths
    )
    for at in range(3):
        np.testing.assert_allclose(
            batch[at],
            dot_product_attention(q[at], k[at], v[at], Mask(length=lengths[at])),
            atol=1e-6,
        )


@pytest.mark.slow
def test_large_scores():
    q = jnp.full((1, 1, 1), 1e4)
    k = jnp.array([1e4, -1e4])[:, None, None]
    v = jnp.array([1.0, 2.0])[:, None, None]
    assert dot_product_attention(q, k, v).ravel().tolist() == [1.0]
    assert np.isfinite(jax.grad(lambda k: dot_product_attention(q, k, v).sum())(k)).all()


@pytest.mark.slow
def test_half_precision_accumulates_in_float32():
    q, k, v = (a.astype(jnp.bfloat16) for a in parts(16, 200))
    found = dot_product_attention(q, k, v)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(float), attention_by_loops(q, k, v, FULL)[0], atol=0.01)


def compiled_memory(t):
    """Bytes of temporary memory of the compiled value and gradient."""
    shape = jax.ShapeDtypeStruct((t, 1, 4), jnp.float32)
    f = jax.value_and_grad(
        lambda q, k, v: jnp.square(dot_product_attention(q, k, v, Mask(after=0))).sum(),
        argnums=(0, 1, 2),
    )
    return jax.jit(f).lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes


def test_memory_is_not_quadratic():
    one = compiled_memory(4096)
    two = compiled_memory(8192)
    assert one < 4 * 4096**2 / 2  # half of one table of float32
    assert two < 1.5 * one


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    q, k, v = parts()
    with pytest.raises(
        ValueError, match=r"dot_product_attention: expected queries \(t, h, d\).* got \(5, 4\)"
    ):
        dot_product_attention(q[..., 0], k, v)
    with pytest.raises(ValueError, match="must have the same width"):
        dot_product_attention(q, k[..., :1], v)
    with pytest.raises(ValueError, match="must be a multiple of the key heads"):
        dot_product_attention(q[:, :3], k, v)
    with pytest.raises(ValueError, match=r"must have shape \(7,\).* got \(5,\)"):
        dot_product_attention(q, k, v, Mask(allowed=jnp.ones(5, bool)))
    with pytest.raises(
        ValueError, match=r"slopes must have one entry for each of the 4 heads; got shape \(2,\)"
    ):
        dot_product_attention(q, k, v, Mask(slopes=jnp.ones(2)))
