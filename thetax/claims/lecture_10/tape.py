"""Differentiation written out in plain Python, to compare with: dual numbers forwards, and a tape
that is run backwards.
"""

import math
from typing import Any


class Dual:
    r"""$a + \dot a\,\varepsilon$ with $\varepsilon^2 = 0$: one direction, carried along."""

    def __init__(self, value: float, dot: float = 0.0):
        self.value, self.dot = value, dot

    def __add__(self, other: "Dual") -> "Dual":
        return Dual(self.value + other.value, self.dot + other.dot)

    def __mul__(self, other: "Dual") -> "Dual":
        return Dual(self.value * other.value, self.dot * other.value + self.value * other.dot)

    def sin(self) -> "Dual":
        r"""$\sin$, with its slope."""
        return Dual(math.sin(self.value), math.cos(self.value) * self.dot)

    def tanh(self) -> "Dual":
        r"""$\tanh$, with its slope."""
        return Dual(math.tanh(self.value), (1 - math.tanh(self.value) ** 2) * self.dot)


class Node:
    """A value of a graph that is built as it is computed: what it was made of, with the slope by
    each of them.
    """

    def __init__(self, value: float, made_of: tuple[tuple["Node", float], ...] = ()):
        self.value, self.made_of, self.grad = value, made_of, 0.0

    def __add__(self, other: "Node") -> "Node":
        return Node(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other: "Node") -> "Node":
        return Node(self.value * other.value, ((self, other.value), (other, self.value)))

    def sin(self) -> "Node":
        r"""$\sin$, and what it was made of."""
        return Node(math.sin(self.value), ((self, math.cos(self.value)),))

    def tanh(self) -> "Node":
        r"""$\tanh$, and what it was made of."""
        return Node(math.tanh(self.value), ((self, 1 - math.tanh(self.value) ** 2),))

    def backward(self) -> int:
        """Adds the slope of this value to `grad` of all it was made of, last made first; the nodes
        visited.
        """
        order: list[Node] = []
        _after_parts(self, set(), order)
        slopes = dict.fromkeys(order, 0.0) | {self: 1.0}
        for node in reversed(order):
            node.grad += slopes[node]
            for part, slope in node.made_of:
                slopes[part] += slope * slopes[node]
        return len(order)


def _after_parts(node: Node, seen: set[Node], order: list[Node]) -> None:
    """A topological order: every node comes after its parts."""
    if node not in seen:
        seen.add(node)
        for part, _ in node.made_of:
            _after_parts(part, seen, order)
        order.append(node)


def random_graph(recipe: list[Any], inputs: list[Any], *, how: dict[str, Any]) -> Any:
    """The last value of a graph in which each step takes two earlier values; `how` says what the
    steps mean.
    """
    values = list(inputs)
    for word, i, j in recipe:
        values.append(how[word](values[i], values[j]))
    return values[-1]
