r"""Looking inside a network while it computes: every chosen layer reports to a visitor.

A model is a pure function, so nothing can be hooked onto it; instead `tap` gives a copy whose
chosen layers are wrapped. The visitor sees each one's name, the layer, its call (with the key it
was given, if any) and its input, and answers for its output, inside whatever `jit`, `vmap` or
`grad` the call runs in.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from ..core import apply
from ..tree import dotted

Visitor = Callable[[str, Any, Callable[[Any], Any], Any], Any]  # visit(name, layer, call, x) -> y


class _Tap(eqx.Module):
    layer: Any
    name: str = eqx.field(static=True)
    visit: Visitor = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None, **more: Any) -> Any:
        layer = partial(self.layer, **more) if more else self.layer
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
    leave: Callable[[Any], bool] = lambda node: False,
) -> Any:
    """The same network, in which each layer that `select` chooses is called through `visit`.

    What `leave` chooses stays as it is, with all inside it.

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
    chosen = lambda node: select(node) and not leave(node)
    nodes, structure = jax.tree.flatten_with_path(
        model, is_leaf=lambda node: leave(node) or select(node)
    )
    wrapped = [_Tap(node, dotted(path), visit) if chosen(node) else node for path, node in nodes]
    return jax.tree.unflatten(structure, wrapped)
