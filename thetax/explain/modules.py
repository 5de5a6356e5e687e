"""What a network is made of: its modules, a short name for each, and a way to listen to all of them
at once.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax

from ..layers import Additive, Concat, Pointwise, Residual, tap
from ..layers.tap import Visitor
from ..tree import dotted

Path = tuple[Any, ...]
JOINTS = (Residual, Concat)  # composites whose output is more than that of their last part


def _children(node: Any) -> list[tuple[Path, Any]]:
    children, _ = jax.tree.flatten_with_path(node, is_leaf=lambda other: other is not node)
    return [(path, child) for path, child in children if path]


def modules(node: Any, path: Path = ()) -> Iterator[tuple[str, Any]]:
    """Every module of a model by its dotted path, outermost first, in the order of its leaves.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> [name for name, module in modules(MLP.init(2, 3, 1, key=jr.key(0)))]
    ['', 'body', 'body.layers.0', 'body.layers.1', 'body.layers.2']
    """
    if isinstance(node, eqx.Module):
        yield dotted(path), node
    for step, child in _children(node):
        yield from modules(child, path + step)


def labels(model: Any) -> dict[str, str]:
    """A short name for every module by its path: its kind, and which of that kind it is.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> list(labels(MLP.init(2, 3, 1, key=jr.key(0))).values())
    ['MLP 1', 'Chain 1', 'Linear 1', 'relu 1', 'Linear 2']
    """
    seen: dict[str, int] = {}
    found = {}
    for path, module in modules(model):
        kind = (
            _function(module.activation) if isinstance(module, Pointwise) else type(module).__name__
        )
        seen[kind] = seen.get(kind, 0) + 1
        found[path] = f"{kind} {seen[kind]}"
    return found


def _function(f: Any) -> str:
    name = getattr(f, "__qualname__", type(f).__name__).partition(".<locals>")[0].rpartition(".")[2]
    return "lambda" if name == "<lambda>" else name


def owners(model: Any) -> list[str]:
    """The path of the module that holds each leaf, in the order of `jax.tree.leaves`."""
    paths = [path for path, _ in jax.tree.flatten_with_path(model)[0]]
    held = [path for path, _ in modules(model)]
    within = lambda leaf, path: path == "" or leaf == path or leaf.startswith(path + ".")
    return [
        max((path for path in held if within(dotted(leaf), path)), key=len, default="")
        for leaf in paths
    ]


def is_cell(node: Any) -> bool:
    """Whether a module is a cell: it says what it remembers at the start, and is run along a
    sequence.
    """
    start = getattr(type(node), "start", None) if isinstance(node, eqx.Module) else None
    return start is not None and not callable(
        start
    )  # a transformer's must be told how long the sequence may be


def is_part(node: Any) -> bool:
    """A module that is heard as a whole: it holds no other, or its class says `heard_whole = True`.

    The latter is for what runs its parts many times over, side by side or one after another.
    """
    if getattr(type(node), "heard_whole", False):
        return True
    return isinstance(node, eqx.Module) and callable(node) and len(list(modules(node))) == 1


def listen(model: Any, hear: Callable[[str, Any], Any]) -> Any:
    """The same network, where the output `y` of each part and of each joint becomes
    `hear(path, y)`.

    Parts are heard in the order in which they compute. What is inside a part that is heard as a
    whole, as an `Ensemble` is, or inside a cell, is out of hearing, and so is an attention, which a
    cell asks.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Chain
    >>> heard = []
    >>> _ = listen(Residual(Chain(jnp.cos)), lambda path, y: heard.append(path) or y)(jnp.zeros(1))
    >>> heard
    ['inner.layers.0', '']
    """
    return overhear(model, lambda path, layer, call, x: hear(path, call(x)))


def overhear(model: Any, visit: Visitor) -> Any:
    """The same network, where each part and each joint is called through
    `visit(path, layer, call, x)`, as by `tap`.
    """
    inside = lambda node: sum(isinstance(module, JOINTS) for _, module in modules(node))
    rings = max(
        [inside(module) for _, module in modules(model) if isinstance(module, JOINTS)], default=0
    )
    heard = tap(
        model,
        select=is_part,
        visit=visit,
        leave=lambda node: is_cell(node) or isinstance(node, Additive),
    )
    for ring in range(
        1, rings + 1
    ):  # from the innermost outwards, so that a name never runs through a tap
        heard = tap(
            heard,
            select=lambda node, r=ring: isinstance(node, JOINTS) and inside(node) == r,
            visit=visit,
        )
    return heard
