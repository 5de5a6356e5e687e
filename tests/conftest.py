"""The tests run strict: ranks never promote, warnings are errors, and shapes are checked at every call.

Dtype promotion is strict where no Optax step is involved (its `adam` mixes int and float): `usefixtures("strict")`.
Compiled programs are kept between runs in the user's cache folder, so that a second run only runs.
"""

import gc
import os
from pathlib import Path

import jax
import jaxtyping
import pytest
import scipy.linalg  # noqa: F401  its LAPACK must be here to be limited
from hypothesis import settings
from threadpoolctl import threadpool_limits

from thetax.train import Silent

SLOW = Path(__file__).with_name("slow.txt")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thetax" / "tests-jax"

jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would round products to tf32
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

threadpool_limits(1)  # two workers that both want every core wait for each other

settings.register_profile("thetax", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("thetax")


def pytest_configure(config):
    """The quick run compiles more than it computes, and so without most optimizations; the whole run as users do.

    Two workers share the cache: one may find a file the other is still writing, and then compiles by itself.
    """
    if config.option.markexpr.endswith("and not slow"):
        jax.config.update("jax_disable_most_optimizations", True)
        if jax.__version_info__ < (0, 11):  # a later XLA may not know this flag; here it halves what is left
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Those that take long from a cold start are listed in one file."""
    listed = {line for line in SLOW.read_text().splitlines() if not line.startswith("#")}
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """What is imported stays: the collector of garbage need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


@pytest.fixture
def strict():
    """No silent change of dtype."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def x64():
    """Double precision, for finite differences and closed forms."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unchecked():
    """Shape annotations are not checked, as in a user's process: what refuses bad input is the library itself."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def in_an_empty_folder(tmp_path, monkeypatch):
    """What a command writes is written there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def silent() -> Silent:
    return Silent()
