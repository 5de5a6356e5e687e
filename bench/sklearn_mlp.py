"""The peer of `mlp` in scikit-learn: its classifier with the same solver, batches and weights."""

import time
import warnings
from typing import Any

import numpy as np

from .row import library


class SklearnMLP:
    """The network of a job as an `MLPClassifier`, whose weights are transposed."""

    def __init__(self, job: Any, *, epochs: int):
        self.network, self.job, self.epochs = library("sklearn.neural_network"), job, epochs

    def cost(self) -> float:
        """Milliseconds per step of a whole `fit`."""
        model = self._classifier(max_iter=self.epochs)
        steps = self.epochs * self.job.n // self.job.batch
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence
            model.fit(*self.job.data)
        spent = time.perf_counter() - start
        assert model.n_iter_ == self.epochs
        return 1e3 * spent / steps

    def logits(self, xs: np.ndarray) -> np.ndarray:
        """The logits of the untrained network."""
        model = self._with_our_weights()
        model.out_activation_ = "identity"
        return model._forward_pass_fast(xs)

    def step(self, xs: np.ndarray, ys: np.ndarray) -> tuple[None, list]:
        """The weights after one step; the gradient is not available."""
        model = self._with_our_weights()
        model.partial_fit(xs, ys)
        return None, [(W.T, b) for W, b in zip(model.coefs_, model.intercepts_)]

    def dropout_losses(self, xs: np.ndarray, ys: np.ndarray, n: int) -> None:
        """It has no dropout."""

    def _classifier(self, **settings: Any) -> Any:
        return self.network.MLPClassifier(
            hidden_layer_sizes=self.job.sizes[1:-1],
            solver="adam",
            learning_rate_init=1e-3,
            batch_size=self.job.batch,
            alpha=0.0,
            tol=0.0,
            n_iter_no_change=10**6,
            **settings,
        )

    def _with_our_weights(self) -> Any:
        """The initialised classifier, with our weights and a new optimiser."""
        model = self._classifier()
        batch = self.job.batch
        xs, ys = self.job.data
        model.partial_fit(xs[:batch], ys[:batch], classes=np.unique(ys))
        for (W, b), coefficients, intercepts in zip(
            self.job.layers, model.coefs_, model.intercepts_, strict=True
        ):
            coefficients[...], intercepts[...] = W.T, b
        del model._optimizer
        return model
