"""XLA computes right numbers with the flag that `import thetax` sets; the reproducers fail without
it.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.xla_flags import FLAG, set_xla_flags

pytestmark = pytest.mark.versions

MATRIX = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


@pytest.mark.parametrize("n", [1000, 32_769, 40_961])
def test_mapped_norms_of_products(n):
    """Wrong in jaxlib 0.10.2 from n = 32,769 on: entries of the last block are not computed."""
    xs = np.random.default_rng(1).normal(size=(n, 3)).astype(np.float32)
    found = jax.jit(jax.vmap(lambda r: jnp.sum((MATRIX @ r) ** 2)))(xs)
    expected = np.square(xs.astype(float) @ MATRIX.T.astype(float)).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_sums_of_products_with_a_constant():
    """NaN or numbers of any size in jaxlib 0.10.2, 0.11.2 and 0.12.0."""
    E = np.random.default_rng(2).normal(size=(5, 60, 60))
    found = jax.jit(lambda E: jnp.sum((E @ jnp.full_like(E, 0.7)) * E, -1))(E)
    np.testing.assert_allclose(found, np.sum((E @ np.full_like(E, 0.7)) * E, -1), rtol=1e-9)


def test_sum_over_a_middle_axis():
    """jaxlib 0.10.2 crashes on it without the flag."""
    a, b = (jr.normal(jr.key(i), (3, 1, 2, 2, 8, 8, 8)) for i in (0, 1))
    found = jax.jit(lambda a, b: jnp.sum(a * b, axis=3))(a, b)
    np.testing.assert_allclose(found, np.sum(np.asarray(a) * np.asarray(b), axis=3), rtol=1e-5)


def test_the_flag_is_appended_once():
    environ = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    set_xla_flags(environ)
    set_xla_flags(environ)
    assert environ["XLA_FLAGS"] == f"--xla_force_host_platform_device_count=2 {FLAG}"


def test_the_users_value_stays():
    environ = {"XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type="}
    set_xla_flags(environ)
    assert environ["XLA_FLAGS"] == "--xla_cpu_experimental_ynn_fusion_type="


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("import jax\nimport thetax", ""),
        (
            "import jax\njax.numpy.zeros(1)\nimport thetax",
            "thetax was imported after JAX had started a backend",
        ),
    ],
    ids=["before a backend", "after a backend"],
)
def test_a_late_import_warns(lines, said):
    environ = {**os.environ, "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", lines], env=environ, capture_output=True, text=True, check=True
    )
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)
