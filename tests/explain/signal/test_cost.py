"""Operations counted in the program, against formulas, a count by hand and XLA's own."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.explain import cost, operations
from thetax.layers import Chain, Dropout, Linear, tanh
from thetax.models import MLP
from thetax.train import cross_entropy, squared_error

pytestmark = pytest.mark.versions


@given(m=st.integers(1, 6), k=st.integers(1, 6), n=st.integers(1, 6))
def test_a_product_counts_twice_its_three_sides(m, k, n):
    assert operations(jnp.matmul, jnp.ones((m, k)), jnp.ones((k, n))) == {
        "dot_general": 2 * m * k * n
    }
    batched = operations(jax.vmap(jnp.matmul), jnp.ones((5, m, k)), jnp.ones((5, k, n)))
    assert batched == {"dot_general": 10 * m * k * n}


def test_pointwise_sums_moves_and_whole_numbers():
    assert operations(lambda x: jnp.sin(x) + 1, jnp.ones((3, 4))) == {"sin": 12, "add": 12}
    assert operations(jnp.sum, jnp.ones((3, 4))) == {"reduce_sum": 12}
    assert operations(jnp.max, jnp.ones(7)) == {"reduce_max": 7}
    assert operations(lambda x: x.reshape(2, 6).T[None, :, ::-1], jnp.ones((3, 4))) == {}
    assert operations(lambda i: i * i + 1, jnp.arange(9)) == {}


def test_loops_count_as_often_as_they_run_and_branches_as_their_dearest():
    def loop(x):
        return jax.lax.scan(lambda x, _: (jnp.cos(x), None), x, length=7)[0]

    def branch(x):
        return jax.lax.cond(x[0] > 0, jnp.sin, lambda x: jnp.sin(jnp.cos(x)), x)

    assert operations(loop, jnp.ones(3)) == {"cos": 21}
    assert operations(jax.vmap(loop), jnp.ones((2, 3)))["cos"] == 42
    found = operations(branch, jnp.ones(3))
    assert (found["sin"], found["cos"]) == (3, 3)
    assert operations(jax.jit(jax.checkpoint(jnp.tanh)), jnp.ones(3)) == {"tanh": 3}


def test_a_convolution_counts_its_window():
    """Each of 2·5·6·6 outputs sums 3·3·3 products."""
    slide = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")
    assert operations(slide, jnp.ones((2, 3, 8, 8)), jnp.ones((5, 3, 3, 3))) == {
        "conv_general_dilated": 2 * 360 * 27
    }


@pytest.mark.parametrize("sizes", [(4, 3), (6, 5, 2), (7, 9, 8, 3)])
def test_dense_layers_and_xla(sizes):
    """2 d d' forwards; as much back for the weights, and for the inputs of all layers but the
    first.
    """
    net = MLP.init(*sizes, key=jr.key(0))
    n = 32
    data = jnp.ones((n, sizes[0])), jnp.zeros(n, jnp.int32)
    found = cost(cross_entropy, net, data)
    pairs = list(pairwise(sizes))
    assert found.value.products == n * sum(2 * a * b for a, b in pairs)
    back = n * (sum(2 * a * b for a, b in pairs) + sum(2 * a * b for a, b in pairs[1:]))
    assert found.reverse.products - found.value.products == back
    assert (
        found.ratio == (found.reverse.operations - found.value.operations) / found.value.operations
    )
    assert np.isnan([found.value.seconds, found.reverse.seconds, found.forward.seconds]).all()
    program = jax.jit(cross_entropy).lower(net, data).compile().cost_analysis()
    assert abs(found.value.operations / program["flops"] - 1) < 0.2
    assert (found.inputs, found.outputs) == (sum(b * (a + 1) for a, b in pairs), 1)


def test_mnist_network_is_the_lectures():
    net = jax.eval_shape(lambda: MLP.init(784, 256, 128, 10, key=jr.key(0)))
    net = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), net)
    found = cost(cross_entropy, net, (jnp.ones((2, 784)), jnp.zeros(2, jnp.int32)))
    assert round((found.reverse.products - found.value.products) / found.value.products, 3) == 1.145


def test_jacobian_by_every_way():
    net = Chain(Linear.init(5, 4, key=jr.key(0)), tanh, Linear.init(4, 3, key=jr.key(1)))
    found = cost(net, jnp.ones(5))
    assert (found.inputs, found.outputs) == (5, 3)
    assert found.jacobian == {
        "reverse mode": 3 * found.reverse.operations,
        "forward mode": 5 * found.forward.operations,
        "differences": 6 * found.value.operations,
    }
    assert found.forward.products == 2 * found.value.products


def test_seconds_are_measured_when_asked():
    net = Linear(jnp.ones((1, 3)))
    found = cost(squared_error, net, (jnp.ones((4, 3)), jnp.zeros(4)), runs=2)
    assert 0 < found.value.seconds < 10
    assert 0 < found.reverse.seconds < 10
    assert 0 < found.forward.seconds < 10


def test_chance_is_not_floating_point_work():
    drop = lambda x: Dropout(0.5)(x, key=jr.key(0))
    assert "random_bits" not in operations(drop, jnp.ones(4))


@pytest.mark.parametrize("f", [jnp.linalg.svd, jnp.sort, jnp.linalg.cholesky])
def test_what_is_not_in_the_program_is_refused(f):
    with pytest.raises(ValueError, match="depends on the numbers or on the machine"):
        operations(f, jnp.eye(3))


def test_an_open_loop_is_refused():
    with pytest.raises(ValueError, match="'while'"):
        operations(
            lambda x: jax.lax.while_loop(lambda x: x < 10, lambda x: 2 * x, x), jnp.array(1.0)
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cost(jnp.sum, jnp.arange(3)), "floats"),
        (lambda: cost(jnp.argmax, jnp.ones(3)), "floats"),
        (lambda: cost(lambda x: jnp.ones(()), ()), "floats"),
        (lambda: cost(jnp.sum, jnp.ones(3), runs=-1), "runs"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
