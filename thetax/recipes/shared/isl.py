"""Two tables of *An Introduction to Statistical Learning* (ISL, chapter 10), done again."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...core import Batch, Model, predict
from ...layers import Linear

ISL = {
    "linear discriminant analysis": 12.7,
    "multinomial logistic": 7.2,
    "ridge network": 2.3,
    "dropout network": 1.8,
}


def _flat(images: Any) -> Batch:
    xs, ys = images
    return xs.reshape(len(xs), -1), ys


def discriminant(train: Batch) -> Linear:
    r"""Linear discriminant analysis as the affine classifier it is (ISL 4.4).

    $z_k = \mu_k^\top \Sigma^{+} x - \tfrac12 \mu_k^\top \Sigma^{+} \mu_k + \log \pi_k$, $\Sigma$
    the pooled covariance.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    xs, ys = train
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(xs, ys)
    return Linear(jnp.asarray(lda.coef_, "float32"), jnp.asarray(lda.intercept_, "float32"))


def auc(model: Model, test: Batch) -> float:
    """The chance that a random positive example is ranked above a random negative one."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(test[1], np.asarray(predict(model, test[0])).ravel()))
