"""The dynamics of memories against loops in numpy, for every kind of memory (§1.4)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.models import (
    DenseMemory,
    ExponentialMemory,
    Hebbian,
    Hopfield,
    asynchronous_recall,
    hebb,
    pseudo_inverse,
    synchronous_recall,
    update_sites,
)

pytestmark = pytest.mark.usefixtures("x64", "strict")
MEMORIES = {
    "Hopfield": lambda X: Hopfield(hebb(X).W, jnp.linspace(-0.3, 0.4, X.shape[1])),
    "pseudo_inverse": lambda X: Hopfield(
        pseudo_inverse(X).W, jnp.linspace(0.011, 0.0137, X.shape[1])
    ),  # no ties
    "Hebbian": Hebbian,
    "DenseMemory 2": lambda X: DenseMemory(X, 2),
    "DenseMemory 3": lambda X: DenseMemory(X, 3),
    "DenseMemory 4": lambda X: DenseMemory(X, 4),
    "ExponentialMemory": ExponentialMemory,
}
memories = pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES.keys())


def patterns(seed, n, d):
    return jnp.asarray(np.random.default_rng(seed).choice([-1.0, 1.0], (n, d)))


def set_site(x, i, value):
    return jnp.asarray(x).at[i].set(value)


@memories
def test_the_field_is_half_the_energy_at_stake(make):
    """By two energies in full at each site; site by site the same, after any number of changes."""
    X = patterns(0, 5, 9)
    memory = make(X)
    for x in patterns(1, 4, 9):
        stakes = [
            float(memory.energy(set_site(x, i, -1.0)) - memory.energy(set_site(x, i, 1.0))) / 2
            for i in range(9)
        ]
        assert np.allclose(memory.field(x), stakes, atol=1e-10 * max(1, np.abs(stakes).max()))
        cache = memory.init_cache(x)
        for i in (3, 7, 3):
            assert np.allclose(
                memory.field_at(cache, jnp.array(i), x[i]), memory.field(x)[i], atol=1e-9
            )
            cache = memory.update_cache(cache, jnp.array(i), -2 * x[i])
            x = set_site(x, i, -x[i])
        assert np.allclose(
            memory.field_at(cache, jnp.array(5), x[5]), memory.field(x)[5], atol=1e-9
        )


def settle_by_hand(memory, x, orders):
    """The algorithm as it is written: two energies for every decision."""
    x = np.array(x)
    flips = 0
    for sweep, order in enumerate(orders, start=1):
        before = x.copy()
        for i in order:
            up, down = (float(memory.energy(set_site(x, i, s))) for s in (1.0, -1.0))
            new = 1.0 if up <= down + 1e-12 else -1.0
            flips, x[i] = flips + (new != x[i]), new
        if (x == before).all():
            return x, sweep, flips
    return x, len(orders), flips


@pytest.mark.sampled(7)
@memories
def test_asynchronous_is_the_algorithm(make):
    """State, sweeps and flips are those of the loop, in the natural order, in one given, and in
    random ones.
    """
    memory = make(patterns(4, 3, 8))
    key = jr.key(3)
    order = np.random.default_rng(0).permutation(8)
    random = [jr.permutation(jr.fold_in(key, sweep), jnp.arange(8)) for sweep in range(20)]
    for start in patterns(1, 3, 8):
        for settings, orders in (
            ({}, [range(8)] * 20),
            ({"order": jnp.asarray(order)}, [order] * 20),
            ({"key": key}, random),
        ):
            rest = asynchronous_recall(memory, start, **settings)
            x, sweeps, flips = settle_by_hand(memory, start, orders)
            assert rest.settled
            assert rest.x.tolist() == x.tolist()
            assert (int(rest.sweeps), int(rest.flips)) == (sweeps, flips)
    assert memory(start).tolist() == asynchronous_recall(memory, start).x.tolist()


@memories
def test_a_rest_is_a_minimum_that_no_flip_lowers(make):
    """And a batch of states is the loop over them."""
    memory = make(patterns(2, 6, 12))
    starts = patterns(3, 20, 12)
    rest = jax.vmap(lambda x: asynchronous_recall(memory, x))(starts)
    assert rest.settled.all()
    assert rest.x.tolist() == [asynchronous_recall(memory, x).x.tolist() for x in starts]
    for x in rest.x[:5]:
        least = min(float(memory.energy(set_site(x, i, -x[i]))) for i in range(12))
        assert least >= float(memory.energy(x)) - 1e-9


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([1, 7, 30]), st.sampled_from([2, 15]))
def test_energies_never_rise(seed, n, d):
    """Along any sequence of sites, for Hebb's couplings of any number of patterns; the record is
    the truth.
    """
    memory = Hebbian(patterns(seed, n, d))
    x = patterns(seed + 1, 1, d)[0]
    sites = jnp.asarray(np.random.default_rng(seed).integers(0, d, 30))
    seen = update_sites(memory, x, sites)
    energies = np.array([float(memory.energy(x)), *seen.energies])
    assert np.allclose(
        np.diff(energies), np.where(seen.flipped, -2 * np.abs(seen.fields), 0.0), atol=1e-9
    )
    assert np.isclose(energies[-1], -0.5 * seen.x @ hebb(memory.patterns).W @ seen.x)


def test_the_limit_is_a_number_of_sweeps():
    """Half way it says that it has not settled; no patterns are needed to compile again."""
    memory = Hebbian(patterns(0, 40, 60))
    x = patterns(1, 1, 60)[0]
    whole = asynchronous_recall(memory, x)
    part = asynchronous_recall(memory, x, max_sweeps=1)
    assert int(whole.sweeps) > 2
    assert int(part.sweeps) == 1
    assert not part.settled
    assert asynchronous_recall(memory, part.x).x.tolist() == whole.x.tolist()


@given(st.integers(0, 10**6))
def test_parallel_updates_end_with_period_one_or_two(seed):
    """Against a loop that remembers every state (Goles & Olivos)."""
    chance = np.random.default_rng(seed)
    W = chance.normal(size=(9, 9))
    W = W + W.T - 2 * np.diag(np.diag(W))
    x = chance.choice([-1.0, 1.0], 9)
    seen = [x]
    while not any((seen[-1] == old).all() for old in seen[:-1]):
        seen.append(np.where(W @ seen[-1] >= 0, 1.0, -1.0))
    period = len(seen) - 1 - next(k for k, old in enumerate(seen) if (old == seen[-1]).all())
    found = synchronous_recall(Hopfield(jnp.asarray(W)), jnp.asarray(x))
    assert int(found.period) == period
    assert found.x.tolist() == seen[-1].tolist()
    assert int(found.steps) == len(seen) - 1
    assert (
        int(synchronous_recall(Hopfield(jnp.asarray(W)), jnp.asarray(x), max_steps=0).period) == 0
    )


def test_states_may_be_whole_numbers_and_numpy():
    """What counts is that they are signs."""
    X = patterns(0, 2, 8)
    expected = hebb(X)(X[0]).tolist()
    for kind in (np.int8, np.float32, np.float64):
        assert hebb(np.asarray(X, kind))(np.asarray(X[0], kind)).tolist() == expected
        assert Hebbian(np.asarray(X, kind))(np.asarray(X[0], kind)).tolist() == expected


@memories
@pytest.mark.usefixtures("unchecked")
def test_bad_states_are_refused(make):
    """Wrong length, a batch, other values, NaN: each with what was expected and what came."""
    memory = make(patterns(0, 3, 8))
    for run in (
        asynchronous_recall,
        synchronous_recall,
        lambda memory, x: update_sites(memory, x, jnp.array([0])),
    ):
        with pytest.raises(ValueError, match=r"expected one example of shape \(8,\), got \(7,\)"):
            run(memory, jnp.ones(7))
        with pytest.raises(ValueError, match=r"vmap"):
            run(memory, jnp.ones((2, 8)))
        with pytest.raises(
            ValueError,
            match=r"state: expected only -1 and \+1, but 3 of 8 are other values, such as 0, 0.5",
        ):
            run(memory, jnp.array([1, 1, -1, 0.5, 0, 1, 1, 0]))
        with pytest.raises(ValueError, match="nan"):
            run(memory, jnp.ones(8).at[2].set(jnp.nan))
    with pytest.raises(ValueError, match="each of the 8 sites once"):
        asynchronous_recall(memory, jnp.ones(8), order=jnp.arange(7))
    with pytest.raises(ValueError, match="each of the 8 sites once"):
        asynchronous_recall(memory, jnp.ones(8), order=jnp.array([0, 1, 2, 3, 4, 5, 6, 6]))
    with pytest.raises(ValueError, match="a key"):
        asynchronous_recall(memory, jnp.ones(8), order=jnp.arange(8), key=jr.key(0))
