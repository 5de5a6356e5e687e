r"""Conversion of weights between our models and other libraries.

A `WeightNames` is a table of rules. Each connects leaves of our model with tensors of the other
library by name, with a conversion in both directions. In our names `{i}` stands for an integer; in
theirs

| pattern | meaning |
|---|---|
| `{i}` | the same integer |
| `{i+1}` | the integer, counted from 1 |
| `{i+a}` | a letter, counted from a |
| `{*}` | every index along the leading axis of our leaf, for stacked layers |

Batch norms of other libraries have running moments. If our model has an `Affine` in that place, the
norm is converted to the affine map $\gamma (x - m)/\sqrt{v + \varepsilon} + \beta$. If it has a
`BatchNorm`, only $\gamma$ and $\beta$ are read, and `fold_batch_norm(model, xs)` uses the moments
of your data.
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

MAX_LISTED = 8  # names in an error message
_PLACEHOLDER = re.compile(r"\{(\w+|\*)(?:\+(\w+))?\}")


class WeightRule(NamedTuple):
    """Names of our leaves and their tensors, with the conversion in both directions."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Callable[..., Arrays]  # their tensors -> our leaves
    write: Callable[..., Arrays]  # our leaves -> their tensors
    is_batch_norm: bool = False  # our leaves may be those of a `BatchNorm`

    @staticmethod
    def copy(ours: str, theirs: str) -> "WeightRule":
        """Our leaf equals their tensor."""
        return WeightRule((ours,), (theirs,), _identity, _identity)

    @staticmethod
    def transpose(ours: str, theirs: str, *axes: int) -> "WeightRule":
        """Our leaf is their tensor with its axes permuted."""
        inverse = np.argsort(axes)
        return WeightRule(
            (ours,), (theirs,), lambda t: (t.transpose(axes),), lambda w: (w.transpose(inverse),)
        )

    @staticmethod
    def norm(ours: str, theirs: tuple[str, str]) -> "WeightRule":
        r"""The $\gamma$ and $\mu$ of a norm under other names."""
        return WeightRule((f"{ours}.gamma", f"{ours}.mu"), theirs, _identity, _identity)

    @staticmethod
    def batch_norm(ours: str, theirs: tuple[str, ...], *, eps: float) -> "WeightRule":
        r"""A batch norm: $\gamma$, $\beta$, mean, variance and optionally the bias of the layer
        before.

        The bias is absorbed into the norm. On writing, bias and mean are 0 and the variance is
        $1 - \varepsilon$.
        """

        def read(gamma, beta, mean, variance, bias=0.0):
            scale = gamma / np.sqrt(variance.astype(np.float64) + eps)
            return scale, beta + scale * (bias - mean)

        def write(gamma, mu):
            zero = np.zeros_like(mu)
            return (gamma, mu, zero, np.full_like(mu, 1 - eps), zero)[: len(theirs)]

        return WeightRule((f"{ours}.gamma", f"{ours}.mu"), theirs, read, write, is_batch_norm=True)


class WeightNames(NamedTuple):
    """The weight names of a network in another library; without rules, the paths of our leaves.

    >>> from thetax.layers import Linear
    >>> names = WeightNames((WeightRule.copy("W", "fc.weight"), WeightRule.copy("b", "fc.bias")))
    >>> theirs = names.write(Linear(jnp.eye(2), jnp.ones(2)))
    >>> theirs["fc.bias"].tolist()
    [1.0, 1.0]
    >>> names.read(theirs, Linear(jnp.zeros((2, 2)), jnp.zeros(2))).W.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> names.read({"fc.weight": np.eye(3)}, Linear(jnp.zeros((2, 2)), jnp.zeros(2)))
    Traceback (most recent call last):
    ValueError: the tensors do not fit this model:
      missing: fc.bias
      misshapen: fc.weight is float64(3, 3); expected float32(2, 2)
    Give the tensors of this network, and the names of the library that saved them.
    """

    rules: tuple[WeightRule, ...] = ()
    ignored: tuple[str, ...] = ()  # suffixes of tensors that are not parameters
    # optional tensors that must equal another tensor
    repeated: Mapping[str, str] = MappingProxyType({})
    root: str = ""  # optional prefix of the names, if the network is part of a larger one

    def read(self, tensors: Mapping[str, Any], like: M, *, source: str = "the tensors") -> M:
        """The model with the structure of `like` and the weights of a state dict.

        `like` may be abstract (`jax.eval_shape`). Missing, superfluous and misshapen tensors are
        listed in one `ValueError`.
        """
        tensors = self._match_root(_to_arrays(tensors))
        leaves, structure = jax.tree.flatten(like)
        links = self._links(like)
        copies = [copy for copy, name in self.repeated.items() if _equal(tensors, copy, name)]
        ignored = (*self.ignored, *copies)
        _check_tensors(tensors, links, ignored, exact=not self.rules, source=source)
        batch_norm_paths = batch_norms(like)
        weights: dict[str, np.ndarray] = {}
        for link in links:
            path = link.ours[0].rpartition(".")[0]
            keep = link.rule.is_batch_norm and path in batch_norm_paths
            read = (lambda *theirs: theirs[:2]) if keep else link.rule.read
            layers = [read(*(tensors[name] for name in names)) for names in link.theirs]
            arrays = layers[0] if link.depth is None else map(np.stack, zip(*layers))
            weights |= zip(link.ours, arrays)
        arrays = [
            np.array(weights[name], leaf.dtype, order="C")
            for name, leaf in zip(tree.leaf_names(like), leaves)
        ]
        return jax.tree.unflatten(structure, jax.device_put(arrays))

    def write(self, model: Any) -> dict[str, np.ndarray]:
        """The state dict of the model; a `BatchNorm`, which has no moments, is a `ValueError`."""
        if self.rules and (norms := batch_norms(model)):
            raise ValueError(
                f"WeightNames: {len(norms)} norms such as {min(norms)} are batch "
                "norms without stored moments; turn them into affine maps with "
                "fold_batch_norm(model, xs)."
            )
        leaves = dict(zip(tree.leaf_names(model), map(np.asarray, jax.tree.leaves(model))))
        return {
            name: np.asarray(tensor, order="C")
            for link in self._links(model)
            for names, tensors in zip(link.theirs, link.write(leaves))
            for name, tensor in zip(names, tensors)
        }

    def _match_root(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors with or without the root in their names, as in the rules."""
        below_root = {
            name.removeprefix(self.root): tensors[name]
            for name in tensors
            if name.startswith(self.root)
        }
        if any(theirs.startswith(self.root) for rule in self.rules for theirs in rule.theirs):
            return (
                tensors
                if below_root
                else {self.root + name: tensor for name, tensor in tensors.items()}
            )
        return below_root or tensors

    def _links(self, like: Any) -> list["_Link"]:
        """The rule and the names for every leaf."""
        leaves = dict(zip(tree.leaf_names(like), jax.tree.leaves(like)))
        if not self.rules:
            return [
                _Link(WeightRule.copy(name, name), (name,), [(name,)], None, (leaf,))
                for name, leaf in leaves.items()
            ]
        links = []
        remaining = dict(leaves)
        for rule in self.rules:
            pattern = _pattern(rule.ours[0])
            for match in [match for name in remaining if (match := pattern.fullmatch(name))]:
                links.append(_link(rule, match, leaves))
                for ours in links[-1].ours:
                    del remaining[ours]
        if remaining:
            raise ValueError(
                f"WeightNames: no rule names {', '.join(remaining)}; the rules are for another "
                "network."
            )
        return links


class _Link(NamedTuple):
    """A rule applied to specific leaves; for stacked layers, `theirs` has one entry per layer."""

    rule: WeightRule
    ours: tuple[str, ...]
    theirs: list[tuple[str, ...]]
    depth: int | None
    leaves: tuple[Any, ...]

    def write(self, leaves: Mapping[str, np.ndarray]) -> list[Arrays]:
        arrays = [leaves[name] for name in self.ours]
        layers = [arrays] if self.depth is None else zip(*arrays)
        return [self.rule.write(*layer) for layer in layers]

    def expected(self) -> dict[str, np.ndarray]:
        """Arrays with the shapes and dtypes of their tensors, which use no memory."""
        empty = {
            name: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
            for name, leaf in zip(self.ours, self.leaves)
        }
        return {
            name: tensor
            for names, tensors in zip(self.theirs, self.write(empty))
            for name, tensor in zip(names, tensors)
        }


def _to_arrays(tensors: Any) -> dict[str, np.ndarray]:
    if not isinstance(tensors, Mapping):
        advice = "Give module.state_dict()" if hasattr(tensors, "state_dict") else "Give a dict"
        raise ValueError(
            f"WeightNames: expected tensors by name; got {type(tensors).__name__}. {advice}."
        )
    arrays = {}
    for name, tensor in tensors.items():
        try:
            arrays[name] = np.asarray(tensor)
        except (TypeError, RuntimeError) as error:
            raise ValueError(
                f"WeightNames: {name} cannot become a NumPy array ({error}); call .float() "
                "on the tensors, and .detach().cpu() if they require gradients or are on a GPU."
            ) from None
    return arrays


def _equal(tensors: Tensors, one: str, other: str) -> bool:
    return one in tensors and other in tensors and np.array_equal(tensors[one], tensors[other])


def _identity(*arrays: np.ndarray) -> Arrays:
    return arrays


def _pattern(ours: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(ours)))


def _link(rule: WeightRule, match: re.Match[str], leaves: Mapping[str, Any]) -> _Link:
    indices = {name: int(index) for name, index in match.groupdict().items()}
    ours = tuple(_fill(name, indices) for name in rule.ours)
    depth = len(leaves[ours[0]]) if any("{*}" in theirs for theirs in rule.theirs) else None
    layers = [indices] if depth is None else [{**indices, "*": i} for i in range(depth)]
    theirs = [tuple(_fill(name, layer) for name in rule.theirs) for layer in layers]
    return _Link(rule, ours, theirs, depth, tuple(leaves[name] for name in ours))


def _fill(name: str, indices: Mapping[str, int]) -> str:
    """The name with its placeholders replaced by indices."""

    def replacement(match: re.Match[str]) -> str:
        index = indices[match[1]]
        start = match[2] or "0"
        return str(index + int(start)) if start.isdigit() else chr(ord(start) + index)

    return _PLACEHOLDER.sub(replacement, name)


def batch_norms(model: Any) -> set[str]:
    """The paths of the batch norms of a model."""
    is_norm = lambda node: isinstance(node, BatchNorm)
    nodes = jax.tree.flatten_with_path(model, is_leaf=is_norm)[0]
    return {tree.path_name(path) for path, node in nodes if is_norm(node)}


def _check_tensors(
    tensors: Tensors, links: list[_Link], ignored: tuple[str, ...], *, exact: bool, source: str
) -> None:
    """Raises `ValueError` with all differences between the tensors and those expected."""
    expected = {name: tensor for link in links for name, tensor in link.expected().items()}
    describe = lambda a: f"{a.dtype}{a.shape}"
    kind = lambda a: (a.shape, a.dtype if exact else jnp.issubdtype(a.dtype, np.floating))
    problems = {
        "missing": sorted(set(expected) - set(tensors)),
        "extra": sorted(
            name for name in set(tensors) - set(expected) if not name.endswith(ignored)
        ),
        "misshapen": [
            f"{name} is {describe(tensors[name])}; expected {describe(tensor)}"
            for name, tensor in sorted(expected.items())
            if name in tensors and kind(tensors[name]) != kind(tensor)
        ],
    }
    if any(problems.values()):
        lines = [f"  {what}: {_name_list(names)}" for what, names in problems.items() if names]
        advice = "Give the tensors of this network, and the names of the library that saved them."
        if tensors and expected and not set(tensors) & set(expected):
            advice = (
                "No name matches; these look like the names of another library. Give names=..., or "
                "the network they belong to."
            )
        raise ValueError("\n".join([f"{source} do not fit this model:", *lines, advice]))


def _name_list(names: list[str]) -> str:
    return ", ".join(names[:MAX_LISTED]) + (
        f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    )
