"""Scikit-learn's side of `mlp`: its classifier with the same solver, batch and weights, and no
penalty.
"""

import time
import warnings
from typing import Any

import numpy as np

from .row import library


class SklearnMLP:
    """The network of a job as an `MLPClassifier`; its weights are (n, m), its labels decide its
    last layer.
    """

    def __init__(self, job: Any, *, epochs: int):
        self.network, self.job, self.epochs = library("sklearn.neural_network"), job, epochs

    def cost(self) -> float:
        """Milliseconds a step of one whole `fit`."""
        model = self._classifier(max_iter=self.epochs)
        steps = self.epochs * self.job.n // self.job.batch
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it has not converged
            model.fit(*self.job.data)
        spent = time.perf_counter() - began
        assert model.n_iter_ == self.epochs
        return 1e3 * spent / steps

    def logits(self, xs: np.ndarray) -> np.ndarray:
        """The untrained network's answers: what goes into its last function."""
        model = self._started()
        model.out_activation_ = "identity"
        return model._forward_pass_fast(xs)

    def step(self, xs: np.ndarray, ys: np.ndarray) -> tuple[None, list]:
        """The weights after one step; its gradient it keeps to itself."""
        model = self._started()
        model.partial_fit(xs, ys)
        return None, [(W.T, b) for W, b in zip(model.coefs_, model.intercepts_)]

    def dropped(self, xs: np.ndarray, ys: np.ndarray, draws: int) -> None:
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

    def _started(self) -> Any:
        """The classifier as it is after its first call, with our weights and a solver that
        remembers nothing.
        """
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
