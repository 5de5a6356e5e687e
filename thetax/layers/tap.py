r"""Observing or changing the activations of a network: `tap` wraps selected layers, like forward
hooks in PyTorch.

A model is a pure function without hooks, so `tap` returns a copy in which the selected layers are
wrapped. At each call of such a layer the visitor receives its name, the layer, its call (with the
key of the call, if any) and its input, and returns the output. It works inside `jit`, `vmap` and
`grad`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from ..core import apply
from ..tree import path_name

Visitor = Callable[[str, Any, Callable[[Any], Any], Any], Any]  # visit(name, layer, call, x) -> y


class _Tap(eqx.Module):
    layer: Any
    name: str = eqx.field(static=True)
    visit: Visitor = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None, **options: Any) -> Any:
        layer = partial(self.layer, **options) if options else self.layer
        return self.visit(self.name, self.layer, lambda x: apply(layer, x, key=key), x)

    def __getattr__(self, name: str) -> Any:  # a model may read a layer's weights, e.g. to tie them
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.layer, name)


def tap(
    model: Any,
    *,
    select: Callable[[Any], bool],
    visit: Visitor,
    skip: Callable[[Any], bool] = lambda node: False,
) -> Any:
    """A copy of the network in which each layer with `select(layer)` true is called through
    `visit`.

    Nodes with `skip(node)` true are left unchanged, with everything inside them.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Chain, Pointwise
    >>> seen = {}
    >>> def visit(name, layer, call, x):
    ...     seen[name] = call(x)
    ...     return seen[name]
    >>> net = tap(Chain(jnp.cos, jnp.sin), select=lambda m: isinstance(m, Pointwise), visit=visit)
    >>> _ = net(jnp.array(0.0))
    >>> {name: round(float(y), 3) for name, y in seen.items()}
    {'layers.0': 1.0, 'layers.1': 0.841}
    """
    is_wrapped = lambda node: select(node) and not skip(node)
    nodes, structure = jax.tree.flatten_with_path(
        model, is_leaf=lambda node: skip(node) or select(node)
    )
    new_nodes = [
        _Tap(node, path_name(path), visit) if is_wrapped(node) else node for path, node in nodes
    ]
    return jax.tree.unflatten(structure, new_nodes)
