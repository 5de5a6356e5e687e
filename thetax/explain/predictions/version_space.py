r"""The version space of linear classifiers: all $(w, b)$ that classify the data correctly; and the
margins of the data (§1.2).

$$V(S) = \{(w, b) : \gamma[w, b](S) > 0\} = \bigcap_i \{(w, b) : y_i (w^\top x_i + b) > 0\}$$

It is an open convex cone: each example is a half-space constraint, so more data can only make it
smaller. Its size is measured as a fraction of all directions.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from ...core import Batch, Model
from ...layers import Chain, Linear
from ...models import MLP, Perceptron, signed_distance
from ...models.linear.separator import check_signed_labels


def in_version_space(model: Perceptron, xs: Num[Any, "n d"], ys: Num[Any, " n"]) -> Bool[Array, ""]:
    r"""Whether $(w, b)$ lies in the version space $V(S)$: it satisfies all $n$ constraints, and
    $w \ne 0$ (§1.2). Use `jax.vmap` for several models.

    >>> bool(in_version_space(Perceptron(jnp.array([1.0, 1.0])), jnp.eye(2), jnp.ones(2)))
    True
    """
    check_signed_labels(xs, ys)
    correct = jax.vmap(lambda x, y: y * model.score(x) > 0)(jnp.asarray(xs), jnp.asarray(ys))
    return correct.all() & (model.w != 0).any()


class VersionVolume(NamedTuple):
    """Monte-Carlo estimate of the fraction of directions in the version space, and its standard
    error.
    """

    fraction: Float[Array, ""]
    error: Float[Array, ""]


def version_volume(
    xs: Num[Array, "n d"],
    ys: Num[Array, " n"],
    *,
    n_samples: int = 100_000,
    bias: bool = False,
    key: PRNGKeyArray,
) -> VersionVolume:
    r"""Volume of the version space: the fraction of directions of $w$, with `bias` of $(w, b)$,
    that lie in $V(S)$, by Monte Carlo (§1.2).

    The standard error uses Laplace's rule, $(k + 1) / (n + 2)$ for $k$ hits in $n$ samples, so it
    is not 0 without hits.

    >>> volume = version_volume(jnp.array([[1.0, 0.0]]), jnp.array([1.0]), key=jr.key(0))
    >>> bool(abs(volume.fraction - 0.5) < 5 * volume.error)
    True
    """
    check_signed_labels(xs, ys)
    models = jax.vmap(lambda key: Perceptron.init(np.shape(xs)[1], bias=bias, key=key))(
        jr.split(key, n_samples)
    )
    hits = jax.vmap(lambda model: in_version_space(model, xs, ys))(models)
    p = (hits.sum() + 1) / (n_samples + 2)
    return VersionVolume(hits.mean(), jnp.sqrt(p * (1 - p) / n_samples))


@dataclass(frozen=True)
class VersionCone:
    r"""The version space of data in the plane without a bias: the directions between the angles
    `low` and `high`, and the normals $y_i x_i$ of its constraints.

    Empty if `low` is not below `high`.
    """

    low: float
    high: float
    normals: Float[np.ndarray, "n 2"]

    @property
    def fraction(self) -> float:
        """The fraction of all directions."""
        return max(self.high - self.low, 0.0) / (2 * np.pi)


def version_cone(xs: Num[Any, "n 2"], ys: Num[Any, " n"]) -> VersionCone:
    r"""Exact version space of points in the plane: an intersection of half circles (§1.2,
    Figure 1.2).

    Example $i$ allows the directions within a right angle of $y_i x_i$. Relative to the first,
    whose half circle is $(-\frac\pi2, \frac\pi2)$, each of the others moves the lower or the upper
    end inwards.

    >>> cone = version_cone(np.eye(2), np.ones(2))
    >>> round(cone.low, 4), round(cone.high, 4), round(cone.fraction, 4)
    (0.0, 1.5708, 0.25)
    """
    check_signed_labels(xs, ys)
    if np.shape(xs)[1] != 2:
        raise ValueError(
            f"version_cone: xs must have shape (n, 2), points in the plane; got {np.shape(xs)}."
        )
    normals = np.asarray(ys, float)[:, None] * np.asarray(xs, float)
    angles = np.arctan2(normals[:, 1], normals[:, 0])
    turn = (angles - angles[0] + np.pi) % (2 * np.pi) - np.pi
    low = angles[0] + turn.max() - np.pi / 2
    high = angles[0] + turn.min() + np.pi / 2
    return VersionCone(float(low), float(high if normals.any(axis=1).all() else low), normals)


@dataclass(frozen=True)
class Margins:
    """Signed distances of examples from the hyperplane of a linear classifier, positive on the
    correct side.
    """

    margin: float  # the smallest signed distance
    separated: bool
    error: float  # the fraction on the wrong side or on the boundary
    distances: Float[np.ndarray, " n"]  # $\gamma[w, b](x_i, y_i)$
    truth: Int[np.ndarray, " n"]  # -1 or +1
    nearest: Int[np.ndarray, " m"]  # indices of the closest examples, the closest first


def hyperplane(model: Model) -> Perceptron | None:
    r"""The separating hyperplane of a linear classifier with two classes, as a perceptron; None for
    other models.

    It is $w^\top x + b = 0$ for one output (a perceptron, a logistic regression), and the
    difference of the two rows for two logits. A network without hidden layers is linear.

    >>> hyperplane(Linear(jnp.array([[1.0], [4.0]]), jnp.zeros(2))).w.tolist()
    [3.0]
    """
    if isinstance(model, Perceptron):
        return model
    if isinstance(model, MLP):
        return hyperplane(model.body)
    if isinstance(model, Chain) and len(model.layers) == 1:
        return hyperplane(model.layers[0])
    if not isinstance(model, Linear) or len(model.W) > 2:
        return None
    W = model.scale_W * model.W
    b = None if model.b is None else model.scale_b * model.b
    row = lambda a: a[0] if len(a) == 1 else a[1] - a[0]
    return Perceptron(row(W), None if b is None else row(b))


def margins(model: Model, data: Batch, *, n_nearest: int = 8) -> Margins:
    r"""Geometric margins $\gamma[w, b](x_i, y_i)$ of labelled data: signed distances from the
    hyperplane of a linear classifier, and their minimum (§1.2).

    The model must be accepted by `hyperplane`; labels are -1 and +1, or 0 and 1; examples of any
    shape are flattened.

    >>> model = Perceptron(jnp.array([2.0]), jnp.array(-2.0))
    >>> result = margins(model, (jnp.array([[3.0], [0.5]]), jnp.array([1, 0])))
    >>> result.margin, result.separated, result.distances.tolist()
    (0.5, True, [2.0, 0.5])
    """
    plane = hyperplane(model)
    if plane is None:
        raise ValueError(
            "margins: expected a linear model with one output or two logits; got "
            f"{type(model).__name__}. A network with hidden layers has no single hyperplane."
        )
    xs, ys = data
    xs = jnp.reshape(jnp.asarray(xs), (len(xs), -1))
    labels = np.asarray(ys)
    if not np.isin(labels, (-1, 0, 1)).all() or ((labels == -1).any() and (labels == 0).any()):
        raise ValueError("margins: labels must be -1 and +1, or 0 and 1.")
    truth = np.where(labels > 0, 1, -1)
    signs = jnp.asarray(truth, xs.dtype)
    distances = np.asarray(
        eqx.filter_jit(jax.vmap(signed_distance, (None, 0, 0)))(plane, xs, signs), float
    )
    closest = np.argsort(np.abs(distances))[:n_nearest]
    wrong = ~(distances > 0)
    return Margins(
        float(distances.min()), not wrong.any(), float(wrong.mean()), distances, truth, closest
    )
