"""Automatic differentiation in plain Python, as a reference: dual numbers for forward mode, and a
tape for reverse mode.
"""

import math
from typing import Any


class Dual:
    r"""$a + \dot a\,\varepsilon$ with $\varepsilon^2 = 0$: the derivative in one direction."""

    def __init__(self, value: float, dot: float = 0.0):
        self.value, self.dot = value, dot

    def __add__(self, other: "Dual") -> "Dual":
        return Dual(self.value + other.value, self.dot + other.dot)

    def __mul__(self, other: "Dual") -> "Dual":
        return Dual(self.value * other.value, self.dot * other.value + self.value * other.dot)

    def sin(self) -> "Dual":
        r"""$\sin$ and its derivative."""
        return Dual(math.sin(self.value), math.cos(self.value) * self.dot)

    def tanh(self) -> "Dual":
        r"""$\tanh$ and its derivative."""
        return Dual(math.tanh(self.value), (1 - math.tanh(self.value) ** 2) * self.dot)


class Node:
    """A node of the graph, built as the value is computed: its parents, with the derivative with
    respect to each of them.
    """

    def __init__(self, value: float, parents: tuple[tuple["Node", float], ...] = ()):
        self.value, self.parents, self.grad = value, parents, 0.0

    def __add__(self, other: "Node") -> "Node":
        return Node(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other: "Node") -> "Node":
        return Node(self.value * other.value, ((self, other.value), (other, self.value)))

    def sin(self) -> "Node":
        r"""$\sin$, with its parent."""
        return Node(math.sin(self.value), ((self, math.cos(self.value)),))

    def tanh(self) -> "Node":
        r"""$\tanh$, with its parent."""
        return Node(math.tanh(self.value), ((self, 1 - math.tanh(self.value) ** 2),))

    def backward(self) -> int:
        """Adds the derivative of this value to `grad` of all its ancestors, in reverse topological
        order; returns the visited nodes.
        """
        order: list[Node] = []
        _topological_order(self, set(), order)
        slopes = dict.fromkeys(order, 0.0) | {self: 1.0}
        for node in reversed(order):
            node.grad += slopes[node]
            for part, slope in node.parents:
                slopes[part] += slope * slopes[node]
        return len(order)


def _topological_order(node: Node, visited: set[Node], order: list[Node]) -> None:
    """A topological order: every node comes after its parents."""
    if node not in visited:
        visited.add(node)
        for part, _ in node.parents:
            _topological_order(part, visited, order)
        order.append(node)


def random_graph(recipe: list[Any], inputs: list[Any], *, how: dict[str, Any]) -> Any:
    """The last value of a graph in which each step takes two earlier values; `how` maps the names
    of the steps to functions.
    """
    values = list(inputs)
    for word, i, j in recipe:
        values.append(how[word](values[i], values[j]))
    return values[-1]
