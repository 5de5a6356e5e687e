r"""Weights under other libraries' names: which of their tensors makes which leaf of ours, and in
which layout.

A map is a table of rules. Each connects leaves of ours with tensors of theirs, by name, and says
how the ones are made of the others and back; so one table both reads and writes. In a name of ours
`{i}` stands for a number; in one of theirs

| written | is |
|---|---|
| `{i}` | the same number |
| `{i+1}` | the number, counted from 1 |
| `{i+a}` | a letter, counted from a |
| `{*}` | every number along the leading axis of our leaf, for equal layers that we stack |

Their batch norms come with moments that were kept while training. Where our model has an `Affine`,
such a norm arrives as the affine map it is, $\gamma (x - m)/\sqrt{v + \varepsilon} + \beta$; where
it has a `BatchNorm`, only $\gamma$ and $\beta$ arrive, and `fold(model, xs)` takes the moments of
your data.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ... import tree
from ...layers import BatchNorm

M = TypeVar("M")
Arrays = tuple[np.ndarray, ...]
Tensors = Mapping[str, np.ndarray]

SHOWN = 8  # names that a message lists
_PLACE = re.compile(r"\{(\w+|\*)(?:\+(\w+))?\}")


class WeightRule(NamedTuple):
    """Leaves of ours and tensors of theirs, and the way from each to the other."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Callable[..., Arrays]  # their tensors to our leaves
    write: Callable[..., Arrays]  # our leaves to their tensors
    is_batch_norm: bool = False  # ours is a norm, which may be one of the batch

    @staticmethod
    def copy(ours: str, theirs: str) -> "WeightRule":
        """The same array."""
        return WeightRule((ours,), (theirs,), _same, _same)

    @staticmethod
    def transpose(ours: str, theirs: str, *axes: int) -> "WeightRule":
        """Ours is theirs with its axes in this order."""
        back = np.argsort(axes)
        return WeightRule(
            (ours,), (theirs,), lambda t: (t.transpose(axes),), lambda w: (w.transpose(back),)
        )

    @staticmethod
    def norm(ours: str, theirs: tuple[str, str]) -> "WeightRule":
        r"""Ours is a layer with $\gamma$ and $\mu$; they call them otherwise."""
        return WeightRule((f"{ours}.gamma", f"{ours}.mu"), theirs, _same, _same)

    @staticmethod
    def batch_norm(ours: str, theirs: tuple[str, ...], *, epsilon: float) -> "WeightRule":
        r"""Ours is a norm; theirs are $\gamma$, $\beta$, mean, variance and, if given, the offset
        of what comes before.

        The offset is taken in; written again it is 0, with mean 0 and variance $1 - \varepsilon$.
        """

        def read(gamma, beta, mean, variance, offset=0.0):
            scale = gamma / np.sqrt(variance.astype(np.float64) + epsilon)
            return scale, beta + scale * (offset - mean)

        def write(gamma, mu):
            zero = np.zeros_like(mu)
            return (gamma, mu, zero, np.full_like(mu, 1 - epsilon), zero)[: len(theirs)]

        return WeightRule((f"{ours}.gamma", f"{ours}.mu"), theirs, read, write, is_batch_norm=True)


class WeightNames(NamedTuple):
    """How a library calls the parts of a network; without rules each leaf is called by its own
    path.

    >>> from thetax.layers import Linear
    >>> names = WeightNames((WeightRule.copy("W", "fc.weight"), WeightRule.copy("b", "fc.bias")))
    >>> theirs = names.write(Linear(jnp.eye(2), jnp.ones(2)))
    >>> theirs["fc.bias"].tolist()
    [1.0, 1.0]
    >>> names.read(theirs, Linear(jnp.zeros((2, 2)), jnp.zeros(2))).W.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> names.read({"fc.weight": np.eye(3)}, Linear(jnp.zeros((2, 2)), jnp.zeros(2)))
    Traceback (most recent call last):
    ValueError: the tensors do not make this model:
      missing: fc.bias
      misshapen: fc.weight is float64(3, 3), expected float32(2, 2)
    Give the tensors of this very network, and the names of the library that made them.
    """

    rules: tuple[WeightRule, ...] = ()
    ignored: tuple[str, ...] = ()  # how the names of tensors end that hold no parameters
    repeated: Mapping[str, str] = MappingProxyType(
        {}
    )  # tensors that may be there and must then equal another
    # how their names begin where the network is part of a larger one; read with it or without
    root: str = ""

    def read(self, tensors: Mapping[str, Any], like: M, *, source: str = "the tensors") -> M:
        """The model shaped as `like`, which may be abstract (`jax.eval_shape`), with the weights of
        a state dict.

        All that is missing, superfluous or misshapen is told at once, in one `ValueError`.
        """
        tensors = self._rooted(_arrays(tensors))
        leaves, structure = jax.tree.flatten(like)
        links = self._links(like)
        copies = [copy for copy, name in self.repeated.items() if _equal(tensors, copy, name)]
        _compare(tensors, links, (*self.ignored, *copies), exact=not self.rules, source=source)
        batch = batch_norms(like)
        found: dict[str, np.ndarray] = {}
        for link in links:
            keep = link.rule.is_batch_norm and link.ours[0].rpartition(".")[0] in batch
            read = (lambda *theirs: theirs[:2]) if keep else link.rule.read
            made = [read(*(tensors[name] for name in names)) for names in link.theirs]
            found |= zip(link.ours, made[0] if link.depth is None else map(np.stack, zip(*made)))
        arrays = [
            np.array(found[name], leaf.dtype, order="C")
            for name, leaf in zip(tree.names(like), leaves)
        ]
        return jax.tree.unflatten(structure, jax.device_put(arrays))

    def write(self, model: Any) -> dict[str, np.ndarray]:
        """The state dict of the model. Norms of the batch have no moments to write: `fold` the
        model first.
        """
        if self.rules and (norms := batch_norms(model)):
            raise ValueError(
                f"WeightNames: {len(norms)} norms such as {min(norms)} are batch "
                "norms without stored moments; turn them into affine maps with fold(model, xs)."
            )
        leaves = dict(zip(tree.names(model), map(np.asarray, jax.tree.leaves(model))))
        return {
            name: np.asarray(tensor, order="C")
            for link in self._links(model)
            for names, tensors in zip(link.theirs, link.written(leaves))
            for name, tensor in zip(names, tensors)
        }

    def _rooted(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors by the names the rules have: with the root, or only those within it and
        without.
        """
        inside = {
            name.removeprefix(self.root): tensors[name]
            for name in tensors
            if name.startswith(self.root)
        }
        if any(theirs.startswith(self.root) for rule in self.rules for theirs in rule.theirs):
            return (
                tensors
                if inside
                else {self.root + name: tensor for name, tensor in tensors.items()}
            )
        return inside or tensors

    def _links(self, like: Any) -> list["_Link"]:
        """For all leaves, the rule and the names it gives."""
        leaves = dict(zip(tree.names(like), jax.tree.leaves(like)))
        if not self.rules:
            return [
                _Link(WeightRule.copy(name, name), (name,), [(name,)], None, (leaf,))
                for name, leaf in leaves.items()
            ]
        links = []
        left = dict(leaves)
        for rule in self.rules:
            pattern = _pattern(rule.ours[0])
            for match in [match for name in left if (match := pattern.fullmatch(name))]:
                links.append(_link(rule, match, leaves))
                for ours in links[-1].ours:
                    del left[ours]
        if left:
            raise ValueError(
                f"WeightNames: no rule names {', '.join(left)}; the rules are for another network."
            )
        return links


class _Link(NamedTuple):
    """A rule for these very leaves; with a depth, `theirs` has the names for each of so many equal
    layers.
    """

    rule: WeightRule
    ours: tuple[str, ...]
    theirs: list[tuple[str, ...]]
    depth: int | None
    leaves: tuple[Any, ...]

    def written(self, leaves: Mapping[str, np.ndarray]) -> list[Arrays]:
        arrays = [leaves[name] for name in self.ours]
        layers = [arrays] if self.depth is None else zip(*arrays)
        return [self.rule.write(*layer) for layer in layers]

    def expected(self) -> dict[str, np.ndarray]:
        """Arrays of the shapes and types their tensors have, which take no room."""
        empty = {
            o: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
            for o, leaf in zip(self.ours, self.leaves)
        }
        return {
            n: t
            for names, made in zip(self.theirs, self.written(empty))
            for n, t in zip(names, made)
        }


def _arrays(tensors: Any) -> dict[str, np.ndarray]:
    if not isinstance(tensors, Mapping):
        cure = "give module.state_dict()" if hasattr(tensors, "state_dict") else "give a dict"
        raise ValueError(
            f"WeightNames: expected tensors by name, got a {type(tensors).__name__}; {cure}."
        )
    found = {}
    for name, tensor in tensors.items():
        try:
            found[name] = np.asarray(tensor)
        except (TypeError, RuntimeError) as trouble:
            raise ValueError(
                f"WeightNames: {name} cannot become a NumPy array ({trouble}); call .float() "
                "on the tensors, and .detach().cpu() if they require gradients or are on a GPU."
            ) from None
    return found


def _equal(tensors: Tensors, one: str, other: str) -> bool:
    return one in tensors and other in tensors and np.array_equal(tensors[one], tensors[other])


def _same(*arrays: np.ndarray) -> Arrays:
    return arrays


def _pattern(ours: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(ours)))


def _link(rule: WeightRule, match: re.Match[str], leaves: Mapping[str, Any]) -> _Link:
    numbers = {place: int(number) for place, number in match.groupdict().items()}
    ours = tuple(_fill(one, numbers) for one in rule.ours)
    depth = len(leaves[ours[0]]) if any("{*}" in theirs for theirs in rule.theirs) else None
    layers = [numbers] if depth is None else [{**numbers, "*": at} for at in range(depth)]
    theirs = [tuple(_fill(one, places) for one in rule.theirs) for places in layers]
    return _Link(rule, ours, theirs, depth, tuple(leaves[one] for one in ours))


def _fill(name: str, numbers: Mapping[str, int]) -> str:
    def place(match: re.Match[str]) -> str:
        number = numbers[match[1]]
        start = match[2] or "0"
        return str(number + int(start)) if start.isdigit() else chr(ord(start) + number)

    return _PLACE.sub(place, name)


def batch_norms(model: Any) -> set[str]:
    """The paths of the model's norms over the batch."""
    is_norm = lambda node: isinstance(node, BatchNorm)
    nodes = jax.tree.flatten_with_path(model, is_leaf=is_norm)[0]
    return {tree.dotted(path) for path, node in nodes if is_norm(node)}


def _compare(
    tensors: Tensors, links: list[_Link], ignored: tuple[str, ...], *, exact: bool, source: str
) -> None:
    """Refuses tensors that are not those expected, with all that is wrong."""
    expected = {name: tensor for link in links for name, tensor in link.expected().items()}
    form = lambda a: f"{a.dtype}{a.shape}"
    kind = lambda a: (a.shape, a.dtype if exact else jnp.issubdtype(a.dtype, np.floating))
    wrong = {
        "missing": sorted(set(expected) - set(tensors)),
        "extra": sorted(
            name for name in set(tensors) - set(expected) if not name.endswith(ignored)
        ),
        "misshapen": [
            f"{name} is {form(tensors[name])}, expected {form(tensor)}"
            for name, tensor in sorted(expected.items())
            if name in tensors and kind(tensors[name]) != kind(tensor)
        ],
    }
    if any(wrong.values()):
        told = "\n".join(f"  {what}: {_listed(names)}" for what, names in wrong.items() if names)
        cure = "Give the tensors of this very network, and the names of the library that made them."
        if tensors and expected and not set(tensors) & set(expected):
            cure = (
                "Not one name is known: these look like another library's names: give names=..., "
                "or its own network."
            )
        raise ValueError(f"{source} do not make this model:\n{told}\n{cure}")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )
