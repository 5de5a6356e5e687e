"""Metrics of the recipes for regression."""

from ...core import Batch, Model, Scalar
from ...train import squared_error


def mean_squared_error(model: Model, batch: Batch, *, key: object = None) -> Scalar:
    r"""Mean of $\|y - f(x)\|^2$; the objective `squared_error` is half of it."""
    return 2 * squared_error(model, batch)
