"""Shared parts of the recipes after *An Introduction to Statistical Learning* (ISL)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...core import Batch, Model, predict
from ...layers import Linear

ISL = {  # test errors on MNIST in percent, table 10.1
    "linear discriminant analysis": 12.7,
    "multinomial logistic regression": 7.2,
    "ridge network": 2.3,
    "dropout network": 1.8,
}


def flatten_images(images: Any) -> Batch:
    """Images as rows of pixels, and their labels."""
    xs, ys = images
    return xs.reshape(len(xs), -1), ys


def linear_discriminant_analysis(train: Batch) -> Linear:
    r"""Linear discriminant analysis, as an affine classifier (ISL 4.4).

    $z_k = \mu_k^\top \Sigma^{+} x - \tfrac12 \mu_k^\top \Sigma^{+} \mu_k + \log \pi_k$, $\Sigma$
    the pooled covariance.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    xs, ys = train
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(xs, ys)
    return Linear(jnp.asarray(lda.coef_, "float32"), jnp.asarray(lda.intercept_, "float32"))


def auc(model: Model, test: Batch) -> float:
    """Area under the ROC curve: the probability that a random positive example is ranked above a
    random negative one.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(test[1], np.asarray(predict(model, test[0])).ravel()))
