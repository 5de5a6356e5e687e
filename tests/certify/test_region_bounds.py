"""Bounds on the number of regions, and the folding network, against enumeration and each other."""

from itertools import product
from math import comb, prod

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.certify import fold_network, montufar_bound, region_upper_bound, zaslavsky_bound
from thetax.explain import breakpoints_1d, count_regions
from thetax.models import MLP


@given(m=st.integers(1, 40), n=st.integers(1, 40))
def test_recursion(m, n):
    assert zaslavsky_bound(m, inputs=n) == zaslavsky_bound(m - 1, inputs=n) + zaslavsky_bound(
        m - 1, inputs=n - 1
    )
    assert zaslavsky_bound(m, inputs=n) <= 2**m
    assert (zaslavsky_bound(m, inputs=n) == 2**m) == (m <= n)


def by_the_sum(n, *widths):
    """Serra's theorem as printed, by enumeration of all tuples."""
    total = 0
    for j in product(*(range(m + 1) for m in widths)):
        room = lambda i, j=j: min([n, widths[i], *(m - k for m, k in zip(widths[:i], j))])
        if all(j[i] <= room(i) for i in range(len(widths))):
            total += prod(comb(m, k) for m, k in zip(widths, j))
    return total


@given(n=st.integers(1, 4), widths=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_the_upper_bound_is_the_theorems_sum(n, widths):
    assert region_upper_bound(*widths, inputs=n) == by_the_sum(n, *widths)
    assert region_upper_bound(widths[0], inputs=n) == zaslavsky_bound(widths[0], inputs=n)
    assert region_upper_bound(*widths, inputs=n) <= prod(
        zaslavsky_bound(m, inputs=n) for m in widths
    )


@pytest.mark.parametrize("sizes", [(1, 4, 4), (2, 4, 3), (2, 3, 3, 2), (3, 3, 3)])
def test_no_network_has_more_regions_than_the_upper_bound(sizes):
    for seed in range(2):
        leaves, structure = jax.tree.flatten(MLP.init(*sizes, 1, key=jr.key(seed)))
        leaves = [a + jr.normal(jr.fold_in(jr.key(9), i), a.shape) for i, a in enumerate(leaves)]
        d = sizes[0]
        count = count_regions(
            jax.tree.unflatten(structure, leaves), np.full(d, -np.inf), np.full(d, np.inf)
        )
        assert count <= region_upper_bound(*sizes[1:], inputs=sizes[0])


@pytest.mark.parametrize(
    ("m", "counts"), [(2, (3, 7, 14, 26)), (3, (4, 13, 37, 109)), (4, (5, 21, 82, 322))]
)
def test_folding_networks(m, counts):
    for L, count in enumerate(counts, start=1):
        found = breakpoints_1d(fold_network(width=m, depth=L), exact=True)
        assert found.n_pieces == count
        assert (
            montufar_bound(inputs=1, width=m, depth=L)
            == (m + 1) * m ** (L - 1)
            <= count
            <= region_upper_bound(*[m] * L, inputs=1)
        )
        assert count_regions(fold_network(width=m, depth=1), -np.inf, np.inf) == m + 1


@pytest.mark.parametrize("m", [2, 3, 5])
def test_a_fold_is_a_zig_zag(m):
    """Before its last layer the network is the zig-zag between 0 and 1, m times over."""
    net = fold_network(width=m, depth=2)
    x = jnp.linspace(0, 1, 1001)[:, None]
    h = jax.nn.relu(jax.vmap(net.body.layers[0])(x))
    g = h @ (-1.0) ** jnp.arange(m)
    t = np.asarray(x[:, 0]) * m % 2
    assert np.allclose(g, np.where(t <= 1, t, 2 - t), atol=1e-5)


def test_bad_input():
    for wrong in (
        lambda: zaslavsky_bound(-1, inputs=2),
        lambda: region_upper_bound(3, 0, inputs=2),
        lambda: montufar_bound(inputs=3, width=2, depth=1),
    ):
        with pytest.raises(ValueError, match="must be an integer >="):
            wrong()
    with pytest.raises(ValueError, match="fold_network: depth must be an integer >= 1; got 0"):
        fold_network(width=3, depth=0)
