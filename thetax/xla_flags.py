r"""XLA settings that have to be in place before JAX starts a backend.

XLA for CPUs hands some reductions and convolutions to the YNNPACK library. In jaxlib 0.10.2 to
0.12.0 a fused reduction can return wrong numbers without any error, in float32 and in float64, with
and without the optimizations of LLVM: `jit(vmap(lambda r: jnp.sum((A @ r) ** 2)))` with a 3x3
matrix is wrong from 32,769 rows on in 0.10.2, and
`jit(lambda E: jnp.sum((E @ jnp.full_like(E, c)) * E, -1))` on an array of shape (5, 60, 60) in all
three. `FLAG` keeps YNNPACK's matrix products, which are fast, and leaves reductions and single
convolutions to XLA, which is also faster for convolutions. `tests/test_compiler.py` holds the
reproducers.
"""

import os
import sys
import warnings
from collections.abc import MutableMapping

OPTION = "xla_cpu_experimental_ynn_fusion_type"
FLAG = f"--{OPTION}=-reduce,-individual_convolution"


def set_xla_flags(environ: MutableMapping[str, str] = os.environ) -> None:
    """Appends `FLAG` to `XLA_FLAGS`; a value that the user set for the same option stays.

    XLA reads the variable once, when JAX starts its first backend. If that has happened without the
    flag, a `RuntimeWarning` says what to do.

    >>> environ = {"XLA_FLAGS": "--xla_cpu_use_thunk_runtime=true"}
    >>> set_xla_flags(environ)
    >>> environ["XLA_FLAGS"]
    '--xla_cpu_use_thunk_runtime=true
    --xla_cpu_experimental_ynn_fusion_type=-reduce,-individual_convolution'
    """
    flags = environ.get("XLA_FLAGS", "")
    if OPTION in flags:
        return
    if environ is os.environ and backend_is_running():
        warnings.warn(
            "thetax was imported after JAX had started a backend, so its XLA flag comes too late: "
            "XLA on a CPU can "
            "return wrong sums and convolutions without an error. Import thetax before the first "
            "JAX computation, or "
            f'start Python with XLA_FLAGS="{FLAG}".',
            RuntimeWarning,
            stacklevel=3,
        )
        return
    environ["XLA_FLAGS"] = f"{flags} {FLAG}".strip()


def backend_is_running() -> bool:
    """Whether this process has started a JAX backend; JAX has no public function that says so."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()
