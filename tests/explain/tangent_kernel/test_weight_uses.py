"""Weight uses in and around a scan, against the same computation as a loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import normal

from thetax.explain.tangent_kernel.weight_uses import find_weight_uses, run_with_taps


@pytest.mark.usefixtures("x64")
def test_taps_are_added_to_the_products_inside_and_outside_scans():
    shapes = (3, 2), (4, 3, 3), (3, 3), (2, 3), (1, 2)
    leaves = [normal(seed, *shape) for seed, shape in enumerate(shapes)]
    x = normal(9, 2)

    def model(leaves, x):
        first, each, every, next_to_last, last = leaves
        step = lambda h, W: (jnp.tanh(W @ h) + every @ h, None)
        return last @ (next_to_last @ jax.lax.scan(step, first @ x, each)[0])

    program = jax.make_jaxpr(model)(leaves, x)
    found = find_weight_uses(program, leaves, [x])
    assert [use.leaf for use in found.uses] == [0, 1, 2, 3, 4]
    assert [count for count, _ in found.scans] == [2]
    taps = [normal(20 + i, *use.tap.shape) for i, use in enumerate(found.uses)]
    (out,), operands = run_with_taps(program, found, leaves, [x], taps)

    first, each, every, next_to_last, last = (np.asarray(leaf) for leaf in leaves)
    added = [np.asarray(tap).reshape(-1, size) for tap, size in zip(taps, (3, 3, 3, 2, 1))]
    h = first @ np.asarray(x) + added[0][0]
    states = []
    for W, inner, outer in zip(each, added[1], added[2]):
        states.append(h)
        h = np.tanh(W @ h + inner) + every @ h + outer
    z = next_to_last @ h + added[3][0]
    np.testing.assert_allclose(out, last @ z + added[4][0], atol=1e-12)
    for operand, expected in zip(operands, (x, states, states, h, z), strict=True):
        np.testing.assert_allclose(operand, np.reshape(expected, operand.shape), atol=1e-12)
