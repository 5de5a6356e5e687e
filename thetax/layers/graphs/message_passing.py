r"""Message passing with any message, update and aggregation: `MessagePassing` (§7.4)."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import suggest
from ...data.graphs import Graph
from ..activation import Activation
from ..compose import Chain, Pointwise
from ..initialise import Initialiser, he
from ..linear import Linear
from .aggregation import (
    Aggregation,
    aggregate,
    check_aggregation,
    gather_receivers,
    gather_senders,
)
from .inputs import expect_edge_features, expect_graph
from .nodewise import apply_to_rows

MessageInput = Literal["receiver", "sender", "edge"]
MESSAGE_INPUTS: tuple[MessageInput, ...] = ("receiver", "sender", "edge")


class MessagePassing(eqx.Module):
    r"""Message passing $\xi_i = \varphi\big(x_i, \bigoplus_{j \to i} \psi(x_j)\big)$ (§7.4; Gilmer
    et al. 2017).

    The message net $\psi$ maps a vector to a vector: the concatenation of what `inputs` lists, of
    `"receiver"` $x_i$, `"sender"` $x_j$ and `"edge"` $x_{ij}$, in that order. The update net
    $\varphi$ maps the concatenation $[x_i, \bigoplus_j m_{ij}]$. Both may be functions or any layer
    of vectors; None is the identity for the message, and for the update the aggregation alone.
    `aggregation` is one of `AGGREGATIONS` or a tuple of several, which are concatenated (Corso et
    al. 2020). The weights of the graph count as in `aggregate`.

    >>> double = MessagePassing(lambda x: 2 * x)
    >>> path = Graph.from_edges([(0, 1), (1, 2)], jnp.array([[1.0], [10.0], [100.0]]))
    >>> double(path).nodes.ravel().tolist()
    [20.0, 202.0, 20.0]
    """

    message: Any
    update: Any
    aggregation: Aggregation | tuple[Aggregation, ...] = eqx.field(static=True)
    inputs: tuple[MessageInput, ...] = eqx.field(static=True)

    def __init__(
        self,
        message: Callable[..., Any] | None = None,
        update: Callable[..., Any] | None = None,
        aggregation: Aggregation | Sequence[Aggregation] = "sum",
        *,
        inputs: Sequence[MessageInput] = ("sender",),
    ):
        check_aggregation("MessagePassing", aggregation)
        listed = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        wrong = [one for one in listed if one not in MESSAGE_INPUTS]
        if wrong or not listed:
            hint = suggest(wrong[0], MESSAGE_INPUTS) if wrong else ""
            raise ValueError(
                f"MessagePassing: {hint}inputs lists what the message depends on, of "
                f"{', '.join(MESSAGE_INPUTS)}; got {listed!r}."
            )
        layer = lambda f: f if f is None or isinstance(f, eqx.Module) else Pointwise(f)
        self.message = layer(message)
        self.update = layer(update)
        self.aggregation = aggregation if isinstance(aggregation, str) else tuple(aggregation)
        self.inputs = tuple(one for one in MESSAGE_INPUTS if one in listed)

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        hidden: int | None = None,
        edge_features: int = 0,
        aggregation: Aggregation | Sequence[Aggregation] = "sum",
        activation: Activation = jax.nn.relu,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "MessagePassing":
        r"""Initialises two networks of one hidden layer: messages $\psi([x_i, x_j, x_{ij}])$ of
        `hidden` numbers, by default `m`, and an update to `m` features.
        """
        hidden = m if hidden is None else hidden
        keys = jr.split(key, 4)
        linear = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, key=key)
        n_aggregations = 1 if isinstance(aggregation, str) else len(aggregation)
        return cls(
            Chain(
                linear(2 * d + edge_features, hidden, keys[0]),
                activation,
                linear(hidden, hidden, keys[1]),
            ),
            Chain(
                linear(d + n_aggregations * hidden, hidden, keys[2]),
                activation,
                linear(hidden, m, keys[3]),
            ),
            aggregation,
            inputs=MESSAGE_INPUTS if edge_features else ("receiver", "sender"),
        )

    def messages(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Float[Array, "e m"]:
        r"""The messages $m_{ij}$ on all edges."""
        parts = {
            "receiver": lambda: gather_receivers(graph, graph.nodes),
            "sender": lambda: gather_senders(graph, graph.nodes),
            "edge": lambda: expect_edge_features(
                "MessagePassing", graph, graph.edges.shape[-1] if graph.edges is not None else 1
            ),
        }
        values = jnp.concatenate([parts[name]() for name in self.inputs], axis=1)
        return values if self.message is None else apply_to_rows(self.message, values, key=key)

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        expect_graph("MessagePassing", graph)
        key_message, key_update = (None, None) if key is None else jr.split(key)
        collected = aggregate(graph, self.messages(graph, key=key_message), self.aggregation)
        if self.update is None:
            return graph.with_nodes(collected)
        both = jnp.concatenate([graph.nodes, collected], axis=1)
        return graph.with_nodes(apply_to_rows(self.update, both, key=key_update))
