"""Modules of a model by path and name, and hooks on their outputs (forward hooks)."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax

from ..layers import AdditiveAttention, Concat, Pointwise, Residual, tap
from ..layers.tap import Visitor
from ..tree import path_name

Path = tuple[Any, ...]
COMPOSITES = (Residual, Concat)  # their output differs from that of their last submodule


def _children(node: Any) -> list[tuple[Path, Any]]:
    children, _ = jax.tree.flatten_with_path(node, is_leaf=lambda other: other is not node)
    return [(path, child) for path, child in children if path]


def named_modules(node: Any, path: Path = ()) -> Iterator[tuple[str, Any]]:
    """Every module of a model with its dotted path, outermost first, in the order of its leaves.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> [name for name, module in named_modules(MLP.init(2, 3, 1, key=jr.key(0)))]
    ['', 'body', 'body.layers.0', 'body.layers.1', 'body.layers.2']
    """
    if isinstance(node, eqx.Module):
        yield path_name(path), node
    for step, child in _children(node):
        yield from named_modules(child, path + step)


def module_names(model: Any) -> dict[str, str]:
    """A short display name for every module, by path: its type and a running number.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> list(module_names(MLP.init(2, 3, 1, key=jr.key(0))).values())
    ['MLP 1', 'Chain 1', 'Linear 1', 'relu 1', 'Linear 2']
    """
    counts: dict[str, int] = {}
    names = {}
    for path, module in named_modules(model):
        is_activation = isinstance(module, Pointwise)
        kind = _function_name(module.activation) if is_activation else type(module).__name__
        counts[kind] = counts.get(kind, 0) + 1
        names[path] = f"{kind} {counts[kind]}"
    return names


def _function_name(f: Any) -> str:
    name = getattr(f, "__qualname__", type(f).__name__).partition(".<locals>")[0].rpartition(".")[2]
    return "lambda" if name == "<lambda>" else name


def parameter_owners(model: Any) -> list[str]:
    """The path of the innermost module that holds each parameter, in the order of
    `jax.tree.leaves`.
    """
    leaf_paths = [path_name(path) for path, _ in jax.tree.flatten_with_path(model)[0]]
    module_paths = [path for path, _ in named_modules(model)]
    holds = lambda path, leaf: path == "" or leaf == path or leaf.startswith(path + ".")
    return [
        max((path for path in module_paths if holds(path, leaf)), key=len, default="")
        for leaf in leaf_paths
    ]


def is_cell(node: Any) -> bool:
    """Whether a module is a recurrent cell: it has an initial state, `start`, and runs along a
    sequence.
    """
    start = getattr(type(node), "start", None) if isinstance(node, eqx.Module) else None
    # The `start` of a transformer's decoder is a method that takes the length of the sequence.
    return start is not None and not callable(start)


def is_leaf_module(node: Any) -> bool:
    """Whether a module is hooked as one unit: it has no submodules, or its class sets
    `is_leaf_module = True`.

    The latter is for modules that vmap or scan their submodules, such as `Ensemble`.
    """
    if getattr(type(node), "is_leaf_module", False):
        return True
    return isinstance(node, eqx.Module) and callable(node) and len(list(named_modules(node))) == 1


def hook_outputs(model: Any, hook: Callable[[str, Any], Any]) -> Any:
    """The same model with a forward hook: the output `y` of each leaf module, and of each
    `Residual` and `Concat`, becomes `hook(path, y)`.

    The hook is called in the order of computation. Submodules of a module that is hooked as one
    unit, such as an `Ensemble`, and of a recurrent cell are not hooked, nor is the attention that a
    cell uses.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Chain
    >>> paths = []
    >>> model = Residual(Chain(jnp.cos))
    >>> _ = hook_outputs(model, lambda path, y: paths.append(path) or y)(jnp.zeros(1))
    >>> paths
    ['inner.layers.0', '']
    """
    return hook_calls(model, lambda path, layer, call, x: hook(path, call(x)))


def hook_calls(model: Any, visit: Visitor) -> Any:
    """The same model, in which each leaf module and each composite is called through
    `visit(path, layer, call, x)`, as by `tap`.
    """
    depth = lambda node: sum(isinstance(module, COMPOSITES) for _, module in named_modules(node))
    max_depth = max(
        [depth(module) for _, module in named_modules(model) if isinstance(module, COMPOSITES)],
        default=0,
    )
    hooked = tap(
        model,
        select=is_leaf_module,
        visit=visit,
        skip=lambda node: is_cell(node) or isinstance(node, AdditiveAttention),
    )
    # From the innermost composites outwards, so that no path leads through a wrapper.
    for level in range(1, max_depth + 1):
        hooked = tap(
            hooked,
            select=lambda node, r=level: isinstance(node, COMPOSITES) and depth(node) == r,
            visit=visit,
        )
    return hooked
