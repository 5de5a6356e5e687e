r"""The penalty on the feature transform of a PointNet (§7.3)."""

import jax

from ...core import Objective, predict
from ...layers import orthogonality_penalty
from ...serialise import recorded
from .regularise import check_strength


@recorded
def with_orthogonal_transform(objective: Objective, *, strength: float = 1e-3) -> Objective:
    r"""$\ell(\theta) + \mu\, \mathbb{E}_x \|I - T(x) T(x)^\top\|_F^2$ with the feature transform
    $T$ of a PointNet (§7.3; Qi et al. 2017).

    The model must have a method `feature_transform(x)`, as `PointNet` and `PointNetSegmentation`.

    >>> from thetax.models import PointNet, PointNetWidths
    >>> net = PointNet.init(2, widths=PointNetWidths().divided_by(32), key=jax.random.key(0))
    >>> zero = lambda model, batch, key=None: 0.0
    >>> clouds = jax.numpy.ones((4, 5, 3))
    >>> float(with_orthogonal_transform(zero)(net, (clouds, None)))
    0.0
    """
    check_strength("with_orthogonal_transform", strength)

    def penalised(model, batch, *, key=None):
        if not hasattr(model, "feature_transform"):
            raise ValueError(
                "with_orthogonal_transform: expected a model with the method feature_transform, "
                f"such as PointNet; got a {type(model).__name__}."
            )
        transforms = predict(model.feature_transform, batch[0])
        penalty = jax.vmap(orthogonality_penalty)(transforms).mean()
        return objective(model, batch, key=key) + strength * penalty

    return penalised
