r"""PointNet (§7.3; Qi et al., CVPR 2017): classification and segmentation of point clouds.

$$X \mapsto X\,T_3(X) \mapsto \text{local features} \mapsto \cdot\, T_{64}(X) \mapsto
\text{point features} \mapsto \max_m \mapsto \text{global feature}$$

The features of the points are equivariant under permutations, the global feature is invariant.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core import Model, apply
from ...layers import SharedMLP, TNet, aggregate_set, lecun
from ...layers.sets.inputs import Elements, join_set, split_set
from ..mlp import MLP


class PointNetWidths(NamedTuple):
    """The widths of the layers of a PointNet; the defaults are those of the paper.

    >>> PointNetWidths().divided_by(8).points
    (8, 16, 128)
    """

    local: tuple[int, ...] = (64, 64)  # the shared MLP before the feature transform
    points: tuple[int, ...] = (64, 128, 1024)  # the shared MLP before the maximum
    head: tuple[int, ...] = (512, 256)  # classification
    segmentation: tuple[int, ...] = (512, 256, 128)  # the shared MLP of the segmentation
    transform: tuple[int, ...] = (64, 128, 1024)  # the shared MLP of the T-nets
    transform_head: tuple[int, ...] = (512, 256)  # the layers of the T-nets after the maximum

    def divided_by(self, factor: int) -> "PointNetWidths":
        """All widths divided by an integer, but at least 1."""
        return PointNetWidths(*(tuple(max(1, m // factor) for m in widths) for widths in self))


PAPER_WIDTHS = PointNetWidths()


class PointFeatures(NamedTuple):
    """The features of a point cloud, and the two transforms."""

    local: Float[Array, "n l"]
    points: Float[Array, "n m"]
    whole: Float[Array, " m"]  # the maximum of `points` over the cloud
    input_transform: Float[Array, "d d"] | None
    feature_transform: Float[Array, "l l"] | None


class PointNetFeatures(eqx.Module):
    r"""The feature extractor $\varphi$ of PointNet: local features of each point and a global
    feature (§7.3).

    Departs: the notes call $\varphi$ permutation invariant; the features of the points are
    equivariant, $\varphi(PX) = P\varphi(X)$, and only their maximum is invariant.

    >>> widths = PointNetWidths().divided_by(16)
    >>> features = PointNetFeatures.init(3, widths=widths, key=jr.key(0))(jnp.ones((5, 3)))
    >>> features.local.shape, features.points.shape, features.whole.shape
    ((5, 4), (5, 64), (64,))
    """

    input_net: TNet | None
    local: SharedMLP
    feature_net: TNet | None
    points: SharedMLP

    @classmethod
    def init(
        cls,
        d: int = 3,
        *,
        widths: PointNetWidths = PAPER_WIDTHS,
        input_transform: bool = True,
        feature_transform: bool = True,
        normalise: Callable[[int], Model] | None = None,
        key: PRNGKeyArray,
    ) -> "PointNetFeatures":
        """Initialises the extractor for points of `d` coordinates and features.

        The transforms can be left out. `normalise` initialises the norms, such as `BatchNorm.init`,
        which the paper uses, or `LayerNorm.init`.
        """
        keys = jr.split(key, 4)
        net = lambda size, key: TNet.init(
            size,
            widths=widths.transform,
            head_widths=widths.transform_head,
            normalise=normalise,
            key=key,
        )
        return cls(
            net(d, keys[0]) if input_transform else None,
            SharedMLP.init(d, *widths.local, normalise=normalise, key=keys[1]),
            net(widths.local[-1], keys[2]) if feature_transform else None,
            SharedMLP.init(widths.local[-1], *widths.points, normalise=normalise, key=keys[3]),
        )

    def __call__(self, x: Elements) -> PointFeatures:
        d = self.local.layers[0].W.shape[1]
        split_set("PointNet", x, d)
        x, input_transform = _transform(self.input_net, x)
        local, feature_transform = _transform(self.feature_net, self.local(x))
        points = self.points(local)
        return PointFeatures(
            _rows(local),
            _rows(points),
            aggregate_set(points, "max"),
            input_transform,
            feature_transform,
        )


class PointNet(eqx.Module):
    r"""Classification of point clouds: an MLP (512, 256, k) of the global feature (§7.3).

    It returns logits. The defaults are those of the paper, which also uses batch normalisation,
    `normalise=BatchNorm.init`.

    >>> widths = PointNetWidths().divided_by(16)
    >>> model = PointNet.init(4, widths=widths, key=jr.key(0))
    >>> model(jr.normal(jr.key(1), (20, 3))).shape
    (4,)
    """

    features: PointNetFeatures
    head: Any

    @classmethod
    def init(
        cls,
        classes: int,
        d: int = 3,
        *,
        widths: PointNetWidths = PAPER_WIDTHS,
        dropout: float = 0.3,
        normalise: Callable[[int], Model] | None = None,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "PointNet":
        """Initialises a classifier; `dropout` acts before the last layer, and other options are
        those of `PointNetFeatures.init`.
        """
        key_features, key_head = jr.split(key)
        rates = (0.0,) * (len(widths.head) - 1) + (dropout,) if widths.head else ()
        return cls(
            PointNetFeatures.init(
                d, widths=widths, normalise=normalise, key=key_features, **options
            ),
            MLP.init(
                widths.points[-1],
                *widths.head,
                classes,
                dropout=rates,
                normalise=normalise,
                key=key_head,
            ),
        )

    def feature_transform(self, x: Elements) -> Float[Array, "l l"]:
        """The transform of the local features, which `with_orthogonal_transform` penalises."""
        return _feature_transform(self.features, x)

    def __call__(self, x: Elements, *, key: PRNGKeyArray | None = None) -> Float[Array, " k"]:
        return apply(self.head, self.features(x).whole, key=key)


class PointNetSegmentation(eqx.Module):
    r"""Segmentation of point clouds: a shared MLP (512, 256, 128, m) of the local and the global
    features of each point, $64 + 1024 = 1088$ numbers (§7.3).

    It returns logits of shape (n, m) for an array and for a `PointSet`, with zeros as padding;
    train it with `thetax.train.token_cross_entropy`, which ignores the label -1.

    >>> widths = PointNetWidths().divided_by(16)
    >>> model = PointNetSegmentation.init(2, widths=widths, key=jr.key(0))
    >>> model(jr.normal(jr.key(1), (20, 3))).shape
    (20, 2)
    """

    features: PointNetFeatures
    head: SharedMLP
    last: SharedMLP

    @classmethod
    def init(
        cls,
        parts: int,
        d: int = 3,
        *,
        widths: PointNetWidths = PAPER_WIDTHS,
        normalise: Callable[[int], Model] | None = None,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "PointNetSegmentation":
        """Initialises a network for `parts` labels; other options are those of
        `PointNetFeatures.init`.
        """
        key_features, key_head, key_last = jr.split(key, 3)
        features = PointNetFeatures.init(
            d, widths=widths, normalise=normalise, key=key_features, **options
        )
        width = widths.local[-1] + widths.points[-1]
        return cls(
            features,
            SharedMLP.init(width, *widths.segmentation, normalise=normalise, key=key_head),
            SharedMLP.init(
                widths.segmentation[-1],
                parts,
                activate_last=False,
                initialiser=lecun,
                key=key_last,
            ),
        )

    def feature_transform(self, x: Elements) -> Float[Array, "l l"]:
        """The transform of the local features, which `with_orthogonal_transform` penalises."""
        return _feature_transform(self.features, x)

    def __call__(self, x: Elements) -> Float[Array, "n m"]:
        found = self.features(x)
        whole = jnp.broadcast_to(found.whole[None], (len(found.local), len(found.whole)))
        rows = join_set(x, jnp.concatenate([found.local, whole], axis=1))
        return _rows(self.last(self.head(rows)))


class CriticalPoints(NamedTuple):
    """Which points of a cloud determine its global feature."""

    is_critical: Bool[Array, " n"]
    indices: Int[Array, " m"]  # of the point that attains the maximum of each global feature


def critical_points(model: PointNet | PointNetSegmentation, x: Elements) -> CriticalPoints:
    r"""The critical points of a cloud: those that attain a maximum, of the global feature or inside
    a T-net (§7.3; Qi et al. 2017, Theorem 2).

    The output of a PointNet for the critical points alone is that for the whole cloud. Of equal
    points the first counts. Batch normalisation must be folded.

    >>> model = PointNet.init(2, widths=PointNetWidths().divided_by(16), key=jr.key(0))
    >>> x = jr.normal(jr.key(1), (50, 3))
    >>> found = critical_points(model, x)
    >>> bool(jnp.allclose(model(x), model(x[found.is_critical]), atol=1e-5))
    True
    """
    features = model.features
    is_critical = jnp.zeros(len(_rows(x)), bool)
    for net, transformed in ((features.input_net, x), (features.feature_net, None)):
        if transformed is None:
            transformed = features.local(_transform(features.input_net, x)[0])
        if net is not None:
            is_critical = is_critical.at[_argmax(net.points(transformed))].set(True)
    indices = _argmax(features.points(_transform(features.feature_net, transformed)[0]))
    return CriticalPoints(is_critical.at[indices].set(True), indices)


def _argmax(x: Elements) -> Int[Array, " m"]:
    points, mask = split_set("critical_points", x)
    shown = points if mask is None else jnp.where(mask[:, None], points, -jnp.inf)
    return jnp.argmax(shown, axis=0)


def _rows(x: Elements) -> Float[Array, "n d"]:
    return split_set("PointNet", x)[0]


def _transform(net: TNet | None, x: Elements) -> tuple[Any, Float[Array, "d d"] | None]:
    r"""$X\,T(X)$ and $T(X)$; without a T-net $X$ itself."""
    if net is None:
        return x, None
    T = net(x)
    return join_set(x, _rows(x) @ T), T


def _feature_transform(features: PointNetFeatures, x: Elements) -> Float[Array, "l l"]:
    if features.feature_net is None:
        raise ValueError(
            "PointNet: the model has no feature transform; initialise it with "
            "feature_transform=True."
        )
    x, _ = _transform(features.input_net, x)
    return features.feature_net(features.local(x))
