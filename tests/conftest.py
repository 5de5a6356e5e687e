"""The tests run strict: ranks never promote, warnings are errors, and shapes are checked at every
call.

Dtype promotion is strict where no Optax step is involved (its `adam` mixes int and float):
`usefixtures("strict")`.

Most of the time goes into compiling, so programs are compiled without most optimizations and kept
between runs in the user's cache folder; `--optimize` compiles as users do. `suite.py` chooses and
orders what runs.
"""

import gc
import os
from pathlib import Path

import jax
import jaxtyping
import pytest
import scipy.linalg  # noqa: F401  its LAPACK must be loaded for threadpool_limits to limit it
import suite
from hypothesis import settings
from jax._src.interpreters import mlir
from threadpoolctl import threadpool_limits

from thetax.train import Silent

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thetax" / "tests-jax"

jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would round products to tf32
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

threadpool_limits(1)  # two workers that both want every core wait for each other

settings.register_profile("thetax", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("thetax")


def pytest_addoption(parser):
    parser.addoption(
        "--optimize", action="store_true", help="compile with all optimizations, as users do"
    )
    parser.addoption(
        "--budget", type=float, metavar="MINUTES", help="start no test after this many minutes"
    )


def pytest_configure(config):
    if not config.getoption("optimize"):
        compile_quickly()
    # Two workers share the cache: one may find a file that the other is still writing, and compiles
    # by itself.
    config.addinivalue_line(
        "filterwarnings", "ignore:Error (reading|writing) persistent compilation cache"
    )
    config.pluginmanager.register(suite.Suite(config))


def compile_quickly():
    """Half the time of compiling: no LLVM optimizations, one file of code a program, one MLIR
    context for all.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    flags = ["--xla_cpu_parallel_codegen_split_count=1"]
    if jax.__version_info__ < (0, 11):  # a later XLA does not know this flag
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
    make = mlir.make_ir_context
    ready = mlir.make_ir_context()

    def context():
        """To make one takes as long as to lower a small program; one inside another must be its
        own.
        """
        try:
            nested = mlir.ir.Context.current is ready
        except ValueError:  # there is none
            nested = False
        return make() if nested else ready

    mlir.make_ir_context = context


def pytest_collection_finish():
    """What is imported stays: the garbage collector need not look at it again."""
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
    """Shape annotations are not checked, as in a user's process: what refuses bad input is the
    library itself.
    """
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
