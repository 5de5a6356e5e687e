r"""Neural tangent kernel (NTK) of any model (§9.1): how far a step that changes $f(x')$ changes
$f(x)$.

$$k(x, x') = \nabla_\theta f(x)\, \nabla_\theta f(x')^\top = \sum_{\text{leaves}} \nabla_W f(x)\,
\nabla_W f(x')^\top$$

The per-example Jacobians, $n \times o \times p$ numbers, are not stored for a leaf that is used in
products: with the factors $\delta$ and $h$ of each example, its contribution to the kernel is
$\sum_{\tau, \tau'} \langle \delta_\tau, \delta'_{\tau'} \rangle \langle h_\tau, h'_{\tau'}
\rangle$.
A leaf that is used at very many positions, such as a convolution kernel, is cheaper by its
gradient. `TangentKernel.plan` estimates both for each leaf and takes the cheaper one. (Jacot et al.
2018; Novak et al. 2022)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...check import check_examples, expect_count
from ...core import Model
from ...memory import format_bytes, free_memory
from ...progress import count_progress
from .ntk_features import (
    DIAGONAL_AXES,
    PAIR_AXES,
    Features,
    Form,
    LeafPlan,
    ModelSignature,
    UseKind,
    contract,
    features,
    plan_leaves,
    signature_of,
    traced_model,
)
from .sharding import RowSharding, split_rows

MEMORY_FRACTION = 0.5  # of the free memory may be used
MIN_TRIANGULAR_BATCH = (
    256  # minimum batch size when batches are only used to skip the upper triangle
)


@dataclass(frozen=True)
class KernelPlan:
    """Estimated cost of a kernel: scalar multiplications, peak memory in bytes, number of rows
    computed at once, and how each leaf is treated.
    """

    multiplications: int
    peak_bytes: int
    batch_size: int
    leaves: tuple[LeafPlan, ...]


class TangentKernel(eqx.Module):
    """`kernel(xs, ys)` for stacked examples, `kernel.diagonal(xs)` and `kernel.plan(xs, ys)`; see
    `ntk`.
    """

    model: Any
    form: Form = eqx.field(static=True, default="full")
    batch_size: int | None = eqx.field(static=True, default=None)
    devices: tuple[Any, ...] = eqx.field(static=True, default=())

    def __call__(self, xs: Any, ys: Any = None) -> Float[Array, "n m ..."]:
        plan, compute_features, kinds = self._prepare(xs, ys)
        sharding = RowSharding(self.devices)
        n = _count(xs)
        m = _count(xs if ys is None else ys)
        size = plan.batch_size
        left = sharding.split(xs, size)
        right = split_rows(xs if ys is None else ys, size)
        replicated = lambda block: sharding.replicate(compute_features(block))
        # features of the columns are kept if memory allows, and otherwise computed for each row
        columns = [replicated(block) for block in right] if _columns_fit(plan, right) else None
        symmetric = columns if self._is_symmetric(ys) else None
        K: Any = None
        with count_progress("rows of the tangent kernel", n) as update:
            for i, block in enumerate(left):
                row = symmetric[i] if symmetric else compute_features(block)
                others = symmetric[: i + 1] if symmetric else columns or map(replicated, right)
                for j, column in enumerate(others):
                    tile = contract(row, column, PAIR_AXES[self.form], kinds)
                    K = sharding.write_tile(K, tile, (i * size, j * size), (n, m))
                    if symmetric and j < i:
                        tile = _transposed(tile)
                        K = sharding.write_tile(K, tile, (j * size, i * size), (n, m))
                if len(left) > 1:
                    jax.block_until_ready(K)
                    update(min(n, (i + 1) * size * sharding.n_devices))
        return self._without_output_axes(sharding.merge(K, n), xs)

    def diagonal(self, xs: Any) -> Float[Array, "n ..."]:
        """Only $k(x_i, x_i)$ for each example."""
        plan, compute_features, kinds = self._prepare(xs, None, diagonal=True)
        blocks = map(compute_features, split_rows(xs, plan.batch_size))
        rows = [contract(block, block, DIAGONAL_AXES[self.form], kinds) for block in blocks]
        return self._without_output_axes(jnp.concatenate(rows), xs)

    def plan(self, xs: Any, ys: Any = None) -> KernelPlan:
        """Estimated cost of `kernel(xs, ys)`, whether or not it fits into memory; the kernel itself
        is not computed. `xs` and `ys` may be `jax.ShapeDtypeStruct`s.
        """
        return self._plan(xs, ys)

    def _plan(
        self, xs: Any, ys: Any, *, diagonal: bool = False, memory: float | None = None
    ) -> KernelPlan:
        """The plan for all pairs, or for the diagonal only, within the given memory in bytes."""
        n = _count(xs)
        m = _count(xs if ys is None else ys)
        signature = _signature(self, xs)
        leaves = plan_leaves(signature, n, m, self.form == "full")
        out = traced_model(signature).program.out_avals[0]
        entries = {"full": out.size**2, "outputs": out.size, "trace": 1}[self.form]  # of a pair
        rows = -(-n // max(1, len(self.devices)))  # of one device
        example_floats = sum(leaf.example_floats for leaf in leaves)
        pair_floats = max((leaf.pair_floats for leaf in leaves), default=0)
        peak_bytes = lambda size: (
            out.dtype.itemsize
            * (
                (n if diagonal else rows * m) * entries
                + 2 * size * example_floats
                + size ** (1 if diagonal else 2) * (entries + pair_floats)
            )
        )
        size = self._choose_batch_size(
            max(n, m),
            peak_bytes,
            triangular=self._is_symmetric(ys),
            memory=memory or MEMORY_FRACTION * free_memory(),
        )
        n_pairs = n * (n + size) // 2 if self._is_symmetric(ys) else n * m
        n_examples = n if ys is None else n + m
        multiplications = sum(
            n_examples * leaf.multiplications + n_pairs * leaf.pair_multiplications
            for leaf in leaves
        )
        return KernelPlan(multiplications, peak_bytes(size), size, leaves)

    def _is_symmetric(self, ys: Any) -> bool:
        """Whether the upper triangle is copied from the lower one."""
        return ys is None and len(self.devices) < 2

    def _choose_batch_size(
        self, n: int, peak_bytes: Callable[[int], int], *, triangular: bool, memory: float
    ) -> int:
        """The batch size asked for, or the largest of n, n/2, n/4, ... that fits into memory.

        Tiles above the diagonal of a symmetric kernel are not computed, so smaller tiles save work.
        """
        if self.batch_size:
            return min(n, self.batch_size)
        sizes = (n >> k for k in range(n.bit_length()))
        largest = next((size for size in sizes if peak_bytes(size) <= memory), 1)
        return min(largest, max(MIN_TRIANGULAR_BATCH, -(-n // 8))) if triangular else largest

    def _prepare(
        self, xs: Any, ys: Any, *, diagonal: bool = False
    ) -> tuple[KernelPlan, Callable[[Any], Features], tuple[UseKind, ...]]:
        """Checks the inputs; returns the plan, the function that computes features, and the kinds
        of weight uses.
        """
        for name, examples in (("xs", xs), ("ys", xs if ys is None else ys)):
            check_examples(examples, name=f"ntk: {name}")
        if ys is not None and jax.tree.structure(xs) != jax.tree.structure(ys):
            raise ValueError(
                "ntk: xs and ys must have the same structure; got "
                f"{jax.tree.structure(xs)} and {jax.tree.structure(ys)}."
            )
        memory = MEMORY_FRACTION * free_memory()
        plan = self._plan(xs, ys, diagonal=diagonal, memory=memory)
        if plan.peak_bytes > memory:
            automatic = replace(self, batch_size=None)
            best = automatic._plan(xs, ys, diagonal=diagonal, memory=memory)
            self._raise_memory_error(plan, best, xs, memory)
        unfactored = frozenset(i for i, leaf in enumerate(plan.leaves) if not leaf.factored)
        return (
            plan,
            lambda block: features(self.model, block, unfactored),
            traced_model(_signature(self, xs), unfactored).kinds(),
        )

    def _raise_memory_error(
        self, plan: KernelPlan, best: KernelPlan, xs: Any, memory: float
    ) -> None:
        limit = format_bytes(memory)
        if best.peak_bytes <= memory:
            raise ValueError(
                f"ntk: batch_size={plan.batch_size:,} needs {format_bytes(plan.peak_bytes)}, but "
                f"only {limit} may be used; batch_size={best.batch_size:,} fits."
            )
        raise ValueError(
            f"ntk: the kernel of {_count(xs):,} examples needs {format_bytes(best.peak_bytes)}, "
            f"but only {limit} may be used; give fewer examples, use another form, or the "
            "matrix-free ntk_operator."
        )

    def _without_output_axes(self, kernel: Array, xs: Any) -> Array:
        """The kernel without axes for the outputs if the output of the model is a scalar."""
        if self.form == "trace" or traced_model(_signature(self, xs)).output_shape:
            return kernel
        return kernel.reshape(kernel.shape[: kernel.ndim - (2 if self.form == "full" else 1)])


def ntk(
    model: Model,
    *,
    form: Form = "full",
    batch_size: int | None = None,
    devices: Sequence[Any] = (),
) -> TangentKernel:
    r"""Neural tangent kernel (NTK) of a model,
    $k(x, x')_{oq} = \langle \nabla_\theta f_o(x), \nabla_\theta f_q(x') \rangle$ (§9.1).

    `ntk(model)(xs, ys)` has shape `n m o o`, with output axes flattened, or `n m` for a model with
    a scalar output. `form="outputs"` computes only $o = q$, `n m o`, and `form="trace"` their sum
    over the outputs, `n m`, which is a kernel for a Gaussian process. The kernel is computed in
    tiles of `batch_size` rows; by default as many as fit into the free memory. With `devices`, for
    instance `jax.devices()`, the rows are sharded over the devices and stay there. The model must
    be differentiable; fold batch norm first. It is called without a key, so without dropout.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 8, 2, key=jr.key(0)), jr.normal(jr.key(1), (5, 3))
    >>> (
    ...     ntk(model)(xs, xs[:4]).shape,
    ...     ntk(model, form="trace")(xs).shape,
    ...     ntk(model).diagonal(xs).shape,
    ... )
    ((5, 4, 2, 2), (5, 5), (5, 2, 2))
    >>> [leaf.factored for leaf in ntk(model).plan(xs).leaves]
    [True, True, True, True]
    """
    if form not in PAIR_AXES:
        raise ValueError(f"ntk: form must be one of {', '.join(PAIR_AXES)}; got {form!r}.")
    if batch_size is not None:
        expect_count("ntk", batch_size=batch_size)
    check_differentiable("ntk", model)
    return TangentKernel(model, form, batch_size, tuple(devices))


def check_differentiable(name: str, model: Any) -> None:
    """Raises if the model has no parameters, or parameters that are not floating-point arrays."""
    leaves = jax.tree.leaves(model)
    is_float = lambda leaf: jnp.issubdtype(getattr(leaf, "dtype", object), jnp.floating)
    others = [leaf for leaf in leaves if not is_float(leaf)]
    if others:
        dtype = getattr(others[0], "dtype", type(others[0]).__name__)
        raise ValueError(
            f"{name}: all parameters of the model must be floating-point arrays; got a leaf of "
            f"{dtype}."
        )
    if not leaves:
        raise ValueError(f"{name}: the model has no parameters.")


def _signature(kernel: TangentKernel, xs: Any) -> ModelSignature:
    return signature_of(
        kernel.model, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    )


def _count(xs: Any) -> int:
    return len(jax.tree.leaves(xs)[0])


def _transposed(tile: Array) -> Array:
    """The tile mirrored at the diagonal, $k(y, x)_{qo}$."""
    return jnp.swapaxes(tile, 0, 1) if tile.ndim < 4 else tile.transpose(1, 0, 3, 2)


def _columns_fit(plan: KernelPlan, blocks: list[Any]) -> bool:
    """Whether the features of all blocks fit into memory beside the kernel."""
    bytes_per_example = sum(leaf.example_floats for leaf in plan.leaves) * 8
    columns_bytes = bytes_per_example * plan.batch_size * len(blocks)
    return len(blocks) == 1 or plan.peak_bytes + columns_bytes < MEMORY_FRACTION * free_memory()
