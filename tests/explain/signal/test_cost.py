"""Operations counted in the program, against formulas, a count by hand and XLA's own."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.explain import count_flops, derivative_cost
from thetax.layers import Chain, Dropout, Linear, tanh
from thetax.models import MLP
from thetax.train import cross_entropy, squared_error

pytestmark = pytest.mark.versions


@given(m=st.integers(1, 6), k=st.integers(1, 6), n=st.integers(1, 6))
def test_a_product_counts_twice_its_three_sides(m, k, n):
    assert count_flops(jnp.matmul, jnp.ones((m, k)), jnp.ones((k, n))) == {
        "dot_general": 2 * m * k * n
    }
    batched = count_flops(jax.vmap(jnp.matmul), jnp.ones((5, m, k)), jnp.ones((5, k, n)))
    assert batched == {"dot_general": 10 * m * k * n}


def test_pointwise_operations_sums_reshapes_and_integers():
    assert count_flops(lambda x: jnp.sin(x) + 1, jnp.ones((3, 4))) == {"sin": 12, "add": 12}
    assert count_flops(jnp.sum, jnp.ones((3, 4))) == {"reduce_sum": 12}
    assert count_flops(jnp.max, jnp.ones(7)) == {"reduce_max": 7}
    assert count_flops(lambda x: x.reshape(2, 6).T[None, :, ::-1], jnp.ones((3, 4))) == {}
    assert count_flops(lambda i: i * i + 1, jnp.arange(9)) == {}


def test_loops_count_all_iterations_and_branches_the_most_expensive():
    def loop(x):
        return jax.lax.scan(lambda x, _: (jnp.cos(x), None), x, length=7)[0]

    def branch(x):
        return jax.lax.cond(x[0] > 0, jnp.sin, lambda x: jnp.sin(jnp.cos(x)), x)

    assert count_flops(loop, jnp.ones(3)) == {"cos": 21}
    assert count_flops(jax.vmap(loop), jnp.ones((2, 3)))["cos"] == 42
    found = count_flops(branch, jnp.ones(3))
    assert (found["sin"], found["cos"]) == (3, 3)
    assert count_flops(jax.jit(jax.checkpoint(jnp.tanh)), jnp.ones(3)) == {"tanh": 3}


def test_a_convolution_counts_its_window():
    """Each of 2·5·6·6 outputs sums 3·3·3 products."""
    slide = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")
    assert count_flops(slide, jnp.ones((2, 3, 8, 8)), jnp.ones((5, 3, 3, 3))) == {
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
    found = derivative_cost(cross_entropy, net, data)
    pairs = list(pairwise(sizes))
    assert found.value.matmul_flops == n * sum(2 * a * b for a, b in pairs)
    back = n * (sum(2 * a * b for a, b in pairs) + sum(2 * a * b for a, b in pairs[1:]))
    assert found.reverse.matmul_flops - found.value.matmul_flops == back
    assert found.ratio == (found.reverse.flops - found.value.flops) / found.value.flops
    assert np.isnan([found.value.seconds, found.reverse.seconds, found.forward.seconds]).all()
    program = jax.jit(cross_entropy).lower(net, data).compile().cost_analysis()
    assert abs(found.value.flops / program["flops"] - 1) < 0.2
    assert (found.n_inputs, found.n_outputs) == (sum(b * (a + 1) for a, b in pairs), 1)


def test_mnist_network_is_the_lectures():
    net = jax.eval_shape(lambda: MLP.init(784, 256, 128, 10, key=jr.key(0)))
    net = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), net)
    found = derivative_cost(cross_entropy, net, (jnp.ones((2, 784)), jnp.zeros(2, jnp.int32)))
    assert (
        round((found.reverse.matmul_flops - found.value.matmul_flops) / found.value.matmul_flops, 3)
        == 1.145
    )


def test_jacobian_by_every_way():
    net = Chain(Linear.init(5, 4, key=jr.key(0)), tanh, Linear.init(4, 3, key=jr.key(1)))
    found = derivative_cost(net, jnp.ones(5))
    assert (found.n_inputs, found.n_outputs) == (5, 3)
    assert found.jacobian_flops == {
        "reverse mode": 3 * found.reverse.flops,
        "forward mode": 5 * found.forward.flops,
        "differences": 6 * found.value.flops,
    }
    assert found.forward.matmul_flops == 2 * found.value.matmul_flops


def test_seconds_are_measured_on_request():
    net = Linear(jnp.ones((1, 3)))
    found = derivative_cost(squared_error, net, (jnp.ones((4, 3)), jnp.zeros(4)), n_runs=2)
    assert 0 < found.value.seconds < 10
    assert 0 < found.reverse.seconds < 10
    assert 0 < found.forward.seconds < 10


def test_random_numbers_are_not_counted():
    drop = lambda x: Dropout(0.5)(x, key=jr.key(0))
    assert "random_bits" not in count_flops(drop, jnp.ones(4))


@pytest.mark.parametrize("f", [jnp.linalg.svd, jnp.sort, jnp.linalg.cholesky])
def test_operations_without_a_cost_are_rejected(f):
    with pytest.raises(ValueError, match="count_flops: the cost of '"):
        count_flops(f, jnp.eye(3))


def test_an_open_loop_is_rejected():
    with pytest.raises(ValueError, match="'while'"):
        count_flops(
            lambda x: jax.lax.while_loop(lambda x: x < 10, lambda x: 2 * x, x), jnp.array(1.0)
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: derivative_cost(jnp.sum, jnp.arange(3)),
            "f must map float arrays to float arrays to be differentiated",
        ),
        (
            lambda: derivative_cost(jnp.argmax, jnp.ones(3)),
            "f must map float arrays to float arrays to be differentiated",
        ),
        (
            lambda: derivative_cost(lambda x: jnp.ones(()), ()),
            "f must map float arrays to float arrays to be differentiated",
        ),
        (lambda: derivative_cost(jnp.sum, jnp.ones(3), n_runs=-1), "runs"),
    ],
)
def test_bad_input_is_rejected(call, words):
    with pytest.raises(ValueError, match=words):
        call()
