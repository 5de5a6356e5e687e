"""Cross-talk, flips, capacity and recall against loops, simulation and closed forms (§1.4)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from thetax import data
from thetax.explain import crosstalk, flip_probability, flip_signs, memory_capacity, memory_recall
from thetax.layers import ModernHopfield
from thetax.models import Hebbian, asynchronous_recall, hebb, pseudo_inverse


def patterns(seed, n, d):
    return jnp.asarray(np.random.default_rng(seed).choice([-1.0, 1.0], (n, d)))


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize(("n", "d"), [(1, 5), (4, 1), (4, 7)])
def test_crosstalk_is_the_field_minus_the_signal(n, d):
    """The field less the signal; nothing where there is one pattern or one site."""
    X = patterns(0, n, d)
    C = crosstalk(X)
    assert np.allclose(C, jax.vmap(hebb(X).field)(X) - (d - 1) / d * X, atol=1e-14)
    assert (np.abs(C).max() == 0) == (n == 1 or d == 1)


def test_flip_probability_is_a_normal_tail():
    n = np.array([50, 138, 400])
    d = 1000
    assert np.allclose(flip_probability(n, d), stats.norm.sf(np.sqrt(d / n)), rtol=1e-12)
    assert np.allclose(
        flip_probability(n, 50, degree=3), stats.norm.sf(np.sqrt(2500 / n / 3)), rtol=1e-12
    )
    assert np.allclose(
        flip_probability(n, 20, degree=4), stats.norm.sf(np.sqrt(8000 / n / 15)), rtol=1e-12
    )


def test_flip_probability_is_what_is_seen():
    """Cross-talk is a sum of (n-1)(d-1) random signs: exact probability and observed fraction."""
    n, d = 60, 200
    wrong = [
        float(jnp.mean(jax.vmap(Hebbian(X).field)(X) * X < 0))
        for X in (patterns(k, n, d) for k in range(20))
    ]
    exact = stats.binom.cdf(((n - 1) * (d - 1) - d) // 2, (n - 1) * (d - 1), 0.5)
    assert np.isclose(flip_probability(n - 1, d - 1), exact, rtol=0.03)
    assert np.isclose(np.mean(wrong), exact, atol=5 * np.std(wrong) / np.sqrt(20))


def test_flip_signs_flips_the_given_number():
    """In each pattern its own; nothing at 0, everything at 1."""
    X = patterns(0, 30, 50)
    noisy = flip_signs(X, fraction=0.3, key=jr.key(0))
    assert (np.sum(np.asarray(noisy != X), axis=1) == 15).all()
    assert len(np.unique(np.asarray(noisy != X), axis=0)) == 30
    assert flip_signs(X[0], fraction=0.0, key=jr.key(0)).tolist() == X[0].tolist()
    assert flip_signs(X[0], fraction=1.0, key=jr.key(0)).tolist() == (-X[0]).tolist()


@pytest.mark.slow
def test_memory_recall_of_each_memory_on_each_pattern():
    X = patterns(0, 6, 40)
    noisy = flip_signs(X, fraction=0.1, key=jr.key(0))
    memories = {"Hebb": hebb(X), "modern": ModernHopfield(X, beta=0.5)}
    found = memory_recall(memories, X, noisy)
    assert found.names == ("Hebb", "modern")
    for answers, overlaps, memory in zip(found.recalled, found.overlaps, memories.values()):
        for answer, overlap, x, start in zip(answers, overlaps, X, noisy):
            expected = np.where(np.asarray(memory(start)) >= 0, 1, -1)
            assert answer.tolist() == expected.tolist()
            assert np.isclose(overlap, expected @ x / 40)
    assert found.exact.tolist() == [np.mean(row == 1) for row in found.overlaps]


def test_hebb_fails_on_correlated_digits():
    """Ten real digits, 8 x 8: the projection rule and the modern layer recall what Hebb's rule
    mixes up.
    """
    xs, ys = data.load("digits").train
    X = jnp.where(
        jnp.asarray(xs[[np.flatnonzero(ys == k)[1] for k in range(10)]]).reshape(10, 64) > 0.5,
        1.0,
        -1.0,
    )
    found = memory_recall(
        {"Hebb": hebb(X), "projection": pseudo_inverse(X), "modern": ModernHopfield(X, beta=1.0)},
        X,
        flip_signs(X, fraction=0.1, key=jr.key(0)),
    )
    assert found.exact[0] == 0
    assert found.exact[1:].min() >= 0.9


@pytest.mark.slow
def test_capacity_is_what_is_left_of_stored_patterns():
    """Full below the transition, little above; and the numbers are those of the dynamics itself,
    sign for sign.
    """
    key = jr.key(0)
    found = memory_capacity(300, [0.05, 0.4], n_tested=8, key=key)
    assert found.loads.tolist() == [0.05, 0.4]
    assert found.overlap[0] > 0.99
    assert found.overlap[1] < 0.6
    assert np.allclose(found.overlap, found.overlaps.mean(axis=1))
    key_draw, key_order = jr.split(jr.fold_in(key, 1))
    X = np.asarray(jr.rademacher(key_draw, (120, 300), float))
    order = np.asarray(jr.permutation(key_order, 300))
    x = X[0].copy()
    W = X.T @ X - 120 * np.eye(300)
    before = None
    while before is None or (x != before).any():
        before = x.copy()
        for i in order:
            x[i] = 1.0 if W[i] @ x >= 0 else -1.0
    assert np.isclose(found.overlaps[1, 0], x @ X[0] / 300)
    assert asynchronous_recall(Hebbian(X), X[0], order=jnp.asarray(order)).x.tolist() == x.tolist()


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_rejected():
    X = patterns(0, 3, 8)
    with pytest.raises(ValueError, match="crosstalk: expected only -1 and"):
        crosstalk(2 * X)
    with pytest.raises(ValueError, match="n and d must be positive and degree at least 2"):
        flip_probability(0, 10)
    with pytest.raises(ValueError, match="degree"):
        flip_probability(5, 10, degree=1)
    with pytest.raises(ValueError, match=r"fraction must be between 0 and 1; got 1\.5"):
        flip_signs(X, fraction=1.5, key=jr.key(0))
    with pytest.raises(ValueError, match=r"got patterns \(3, 8\) and noisy \(2, 8\)"):
        memory_recall({"Hebb": hebb(X)}, X, X[:2])
    with pytest.raises(ValueError, match="nan"):
        memory_recall({"Hebb": hebb(X)}, X, X.at[0, 0].set(jnp.nan))
    with pytest.raises(
        ValueError, match=r"memories must be a non-empty mapping of names to.*got an empty mapping"
    ):
        memory_recall({}, X, X)
    with pytest.raises(
        ValueError,
        match="n_tested must be between 1 and 5, the number of patterns at the smallest load",
    ):
        memory_capacity(100, [0.05, 0.1], n_tested=6, key=jr.key(0))
    with pytest.raises(
        ValueError,
        match="n_tested must be between 1 and 0, the number of patterns at the smallest load",
    ):
        memory_capacity(100, [], key=jr.key(0))


def test_one_memory_without_a_name_is_rejected(unchecked):
    X = patterns(0, 2, 8)
    with pytest.raises(
        ValueError, match=r"memories must be a non-empty mapping of names to.*got Hopfield"
    ):
        memory_recall(hebb(X), X, X)
