"""Attention against a triple loop in double precision; its three ways to compute are one
function.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.layers import ALL, Mask, attend, attention_weights
from thetax.layers.attention import dot_product

MASKS = {
    "all": lambda t, s, h: ALL,
    "causal": lambda t, s, h: Mask(after=0),
    "window": lambda t, s, h: Mask(before=3, after=2),
    "behind": lambda t, s, h: Mask(before=2, after=0),
    "ahead": lambda t, s, h: Mask(before=0),
    "length": lambda t, s, h: Mask(length=jnp.array(s - 2, jnp.int32)),
    "nothing": lambda t, s, h: Mask(length=jnp.array(0, jnp.int32)),
    "keys": lambda t, s, h: Mask(there=jnp.arange(s) % 3 != 1),
    "pairs": lambda t, s, h: Mask(there=jnp.asarray(np.random.default_rng(0).random((t, s)) < 0.3)),
    "fade": lambda t, s, h: Mask(after=0, fade=0.5 ** jnp.arange(1.0, h + 1)),
    "later": lambda t, s, h: Mask(
        before=4, after=0, first=jnp.array(3, jnp.int32), fade=jnp.ones(h)
    ),
}
masks = pytest.mark.parametrize("make", MASKS.values(), ids=list(MASKS))


def parts(t=5, s=7, h=4, g=2, d=2, e=3):
    return normal(0, t, h, d), normal(1, s, g, d), normal(2, s, g, e)


def looped(q, k, v, mask):
    """Every head, query and key by itself."""
    q, k, v = (np.asarray(a, float) for a in (q, k, v))
    (t, h, d), (s, g, e) = q.shape, v.shape
    table = np.asarray(mask.table(t, s))
    out = np.zeros((t, h, e))
    A = np.zeros((h, t, s))
    first = 0 if mask.first is None else int(mask.first)
    for n in range(h):
        own = n * g // h
        for i in range(t):
            seen = [j for j in range(s) if table[i, j]]
            scores = [sum(q[i, n, c] * k[j, own, c] for c in range(d)) / math.sqrt(d) for j in seen]
            if mask.fade is not None:
                scores = [
                    score - float(mask.fade[n]) * abs(i + first - j)
                    for score, j in zip(scores, seen)
                ]
            z = sum(math.exp(score) for score in scores)
            for score, j in zip(scores, seen):
                A[n, i, j] = math.exp(score) / z
                out[i, n] += A[n, i, j] * v[j, own]
    return out, A


@masks
@pytest.mark.usefixtures("x64", "strict")
def test_it_is_the_loop(make):
    q, k, v = parts()
    mask = make(5, 7, 4)
    out, A = looped(q, k, v, mask)
    np.testing.assert_allclose(attend(q, k, v, mask), out, atol=1e-12)
    np.testing.assert_allclose(attention_weights(q, k, mask), A, atol=1e-12)


def test_a_query_that_sees_nothing_gets_zero_and_spoils_no_gradient():
    """As a padded row does: its own derivatives are 0, all others finite. NaN that is seen is
    passed on.
    """
    q, k, v = parts(t=2, s=3, h=1, g=1)
    mask = Mask(there=jnp.array([[True, True, False], [False, False, False]]))
    out, back = jax.vjp(jax.jit(lambda q, k, v: attend(q, k, v, mask)), q, k, v)
    slopes = back(jnp.ones_like(out))
    assert not out[1].any()
    assert not slopes[0][1].any()
    np.testing.assert_allclose(out[0], attend(q[:1], k[:2], v[:2])[0], atol=1e-6)
    weights = np.asarray(attention_weights(q[:1], k[:2]))[0, 0]
    np.testing.assert_allclose(
        slopes[2][:, 0], np.outer([*weights, 0], np.ones(3)), atol=1e-6
    )  # of row 0 alone
    assert all(np.isfinite(slope).all() for slope in slopes)
    broken = attend(q.at[0].set(jnp.nan), k, v, mask)
    assert np.isnan(broken).any(axis=(1, 2)).tolist() == [True, False]


@pytest.mark.sampled(6)
@masks
@pytest.mark.usefixtures("x64", "strict")
def test_some_rows_at_a_time(make, monkeypatch):
    """Values and gradients of the long way are those of the table; 37 queries are no whole number
    of parts.
    """
    q, k, v = parts(37, 41)
    mask = make(37, 41, 4)
    weights = normal(3, 37, 4, 3)

    def both():
        return jax.jit(
            jax.value_and_grad(
                lambda *qkv: jnp.vdot(attend(*qkv, mask), weights), argnums=(0, 1, 2)
            )
        )(q, k, v)

    table = both()
    monkeypatch.setattr(dot_product, "TABLE", 1)
    assert "scan" in str(jax.make_jaxpr(lambda q: attend(q, k, v, mask))(q))
    assert close(both(), table, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True])
def test_nothing_to_see(long, monkeypatch):
    """A query that may look at nothing gets 0, and no gradient is spoiled by it."""
    monkeypatch.setattr(dot_product, "TABLE", 1 if long else 2**20)
    q, k, v = parts(20, 20)
    mask = Mask(there=(jnp.arange(20) > 9)[:, None] & jnp.ones(20, bool)[None])
    found, slope = jax.value_and_grad(lambda qkv: jnp.square(attend(*qkv, mask)).sum())((q, k, v))
    assert all(np.isfinite(leaf).all() for leaf in slope)
    assert not slope[0][:10].any()
    assert slope[0][10:].any()
    assert found > 0
    assert not attend(q, k, v, mask)[:10].any()


@pytest.mark.slow
def test_heads_that_share_keys():
    q, k, v = parts(h=6, g=2)
    for mask in (ALL, Mask(after=0)):
        each = [jnp.repeat(a, 3, axis=1) for a in (k, v)]
        np.testing.assert_allclose(attend(q, k, v, mask), attend(q, *each, mask), atol=1e-6)


@pytest.mark.slow
def test_what_is_masked_is_not_there():
    q, k, v = parts()
    there = jnp.array([True, False, True, True, False, False, True])
    np.testing.assert_allclose(
        attend(q, k, v, Mask(there=there)), attend(q, k[there], v[there]), atol=1e-6
    )
    slope = jax.grad(lambda k, v: attend(q, k, v, Mask(there=there)).sum(), argnums=(0, 1))(k, v)
    assert not any(part[~there].any() for part in slope)


@pytest.mark.slow
def test_nonsense_in_the_padding_changes_no_bit():
    q, k, v = parts()
    mask = Mask(length=jnp.array(4))
    spoiled = [a.at[4:].set(1e9) for a in (k, v)]
    assert same_bits(attend(q, k, v, mask), attend(q, *spoiled, mask))


@pytest.mark.slow
def test_the_future_changes_no_bit():
    q, k, v = parts(7, 7)
    before = attend(q, k, v, Mask(after=0))
    after = attend(q.at[4].add(1), k.at[4].add(1), v.at[4].add(1), Mask(after=0))
    assert same_bits(before[:4], after[:4])
    assert (before[4:] != after[4:]).all()


@pytest.mark.slow
def test_a_batch_is_its_items():
    q, k, v = (jnp.stack([a, 2 * a, -a]) for a in parts())
    lengths = jnp.array([7, 3, 0], jnp.int32)
    batch = jax.vmap(lambda q, k, v, n: attend(q, k, v, Mask(length=n)))(q, k, v, lengths)
    for at in range(3):
        np.testing.assert_allclose(
            batch[at], attend(q[at], k[at], v[at], Mask(length=lengths[at])), atol=1e-6
        )


@pytest.mark.slow
def test_large_scores():
    q = jnp.full((1, 1, 1), 1e4)
    k = jnp.array([1e4, -1e4])[:, None, None]
    v = jnp.array([1.0, 2.0])[:, None, None]
    assert attend(q, k, v).ravel().tolist() == [1.0]
    assert np.isfinite(jax.grad(lambda k: attend(q, k, v).sum())(k)).all()


@pytest.mark.slow
def test_half_precision_sums_in_single():
    q, k, v = (a.astype(jnp.bfloat16) for a in parts(16, 200))
    found = attend(q, k, v)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(float), looped(q, k, v, ALL)[0], atol=0.01)


def spent(t):
    """Bytes that the compiled value and gradient need besides what goes in and out."""
    shape = jax.ShapeDtypeStruct((t, 1, 4), jnp.float32)
    f = jax.value_and_grad(
        lambda q, k, v: jnp.square(attend(q, k, v, Mask(after=0))).sum(), argnums=(0, 1, 2)
    )
    return jax.jit(f).lower(shape, shape, shape).compile().memory_analysis().temp_size_in_bytes


def test_memory_does_not_grow_with_the_square():
    one = spent(4096)
    two = spent(8192)
    assert one < 4 * 4096**2 / 2  # half of one table of float32
    assert two < 1.5 * one


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    q, k, v = parts()
    with pytest.raises(ValueError, match=r"attend: expected queries \(t, h, d\).* got \(5, 4\)"):
        attend(q[..., 0], k, v)
    with pytest.raises(ValueError, match="must have one size"):
        attend(q, k[..., :1], v)
    with pytest.raises(ValueError, match="must be a multiple of theirs"):
        attend(q[:, :3], k, v)
    with pytest.raises(ValueError, match=r"one entry for each of the 7 keys.* got \(5,\)"):
        attend(q, k, v, Mask(there=jnp.ones(5, bool)))
    with pytest.raises(
        ValueError, match=r"fade must be one number for each of 4 heads; got \(2,\)"
    ):
        attend(q, k, v, Mask(fade=jnp.ones(2)))
