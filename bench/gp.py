"""Exact Gaussian process regression on 4,000 examples, against scikit-learn and GPyTorch.

The work is one step of the hyper-parameter fit: the kernel matrix, its Cholesky factor, the weights
of the posterior mean, and the log marginal likelihood with its gradient in the variance, the length
scale and the noise. All sides compute in float64.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thetax.bayes import RBF, GaussianProcess

from .row import Row, Work, library

SCALE, LENGTH, NOISE = 1.5, 1.2, 0.1


@dataclass(frozen=True, eq=False)
class Problem:
    """Noisy observations of a smooth function of a few inputs."""

    n: int = 4000
    d: int = 4

    @cached_property
    def data(self) -> tuple[Any, Any]:
        """Inputs and outputs."""
        rng = np.random.default_rng(0)
        xs = rng.standard_normal((self.n, self.d))
        return xs, np.sin(2 * xs[:, 0]) + xs[:, 1] * xs[:, 2] + NOISE**0.5 * rng.standard_normal(
            self.n
        )

    @cached_property
    def process(self) -> GaussianProcess:
        """Ours."""
        return GaussianProcess.init(RBF.init(variance=SCALE, length_scale=LENGTH), noise=NOISE)

    def ours(self) -> tuple[float, Any]:
        """The posterior, the log marginal likelihood and its gradient."""
        posterior = self.process.condition(*self.data)
        gradient = posterior.marginal_likelihood_gradient()
        parts = (gradient.kernel.log_variance, gradient.kernel.log_length_scale, gradient.log_noise)
        return float(posterior.log_marginal_likelihood), np.array([float(part) for part in parts])

    def sklearn(self) -> tuple[float, Any]:
        """A fit with fixed hyper-parameters, the log marginal likelihood and its gradient."""
        gp = library("sklearn.gaussian_process")
        kernels = library("sklearn.gaussian_process.kernels")
        kernel = kernels.ConstantKernel(SCALE) * kernels.RBF(LENGTH) + kernels.WhiteKernel(NOISE)
        model = gp.GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(*self.data)
        return model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)

    @cached_property
    def gpytorch_model(self) -> tuple[Any, Any, Any]:
        """The exact process, its likelihood and the data."""
        torch = library("torch")
        gpytorch = library("gpytorch")
        xs, ys = (torch.tensor(part) for part in self.data)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()

        class Exact(gpytorch.models.ExactGP):
            def __init__(self):
                super().__init__(xs, ys, likelihood)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(self, xs):
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(xs), self.covar_module(xs)
                )

        model = Exact().double()
        scale, length, noise = torch.tensor(
            [SCALE, LENGTH, NOISE], dtype=torch.float64
        )  # a float would be float32
        model.covar_module.outputscale, model.covar_module.base_kernel.lengthscale = scale, length
        likelihood.noise = noise
        return model.train(), likelihood.train(), (xs, ys)

    def gpytorch(self) -> tuple[float, Any]:
        """The log marginal likelihood and its gradient, also by Cholesky."""
        gpytorch = library("gpytorch")
        model, likelihood, (xs, ys) = self.gpytorch_model
        model.zero_grad()
        score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        with gpytorch.settings.max_cholesky_size(10 * self.n):
            value = self.n * score(model(xs), ys)
            value.backward()
        raw = [
            (model.covar_module.raw_outputscale, SCALE),
            (model.covar_module.base_kernel.raw_lengthscale, LENGTH),
            (likelihood.noise_covar.raw_noise, NOISE),
            # a parameter is the softplus of a raw one (the noise plus 1e-4); this converts the
            # derivative to that with respect to the logarithm
        ]
        offsets = (0.0, 0.0, 1e-4)
        gradient = [
            part.grad.item() * at / -np.expm1(-(at - offset))
            for (part, at), offset in zip(raw, offsets)
        ]
        return value.item(), np.array(gradient)

    def agree(self, other: Callable[[], tuple[float, Any]]) -> Callable[[], None]:
        """Raises unless both sides agree."""

        def check() -> None:
            (value, gradient), (theirs, theirs_gradient) = self.ours(), other()
            np.testing.assert_allclose(value, theirs, rtol=1e-8)
            np.testing.assert_allclose(gradient, theirs_gradient, rtol=1e-6, atol=1e-6 * abs(value))

        return check

    @property
    def work(self) -> Work:
        r"""$n^3/3$ for the factor, $2n^3/3$ for the inverse; the matrix is written and read a few
        times.
        """
        return Work(float(self.n) ** 3, 8.0 * 6 * self.n**2)


def timed(once: Callable[[], Any]) -> Callable[[], float]:
    """Seconds."""

    def measure() -> float:
        start = time.perf_counter()
        once()
        return time.perf_counter() - start

    return measure


def describe() -> str:
    """A description of the work."""
    return (
        "Log marginal likelihood of a Gaussian process and its gradient, 4,000 examples of 4 "
        "inputs, float64."
    )


def rows() -> list[Row]:
    """Against both peers, all by Cholesky."""
    p = Problem()
    shared = {"work": Problem().work, "seconds": 1.0, "pairs": 3}
    peers = [("scikit-learn", p.sklearn, 2.0), ("GPyTorch", p.gpytorch, 1.0)]
    return [
        Row(
            "gp, 4,000 examples",
            peer,
            timed(p.ours),
            timed(theirs),
            "s",
            p.agree(theirs),
            target=target,
            **shared,
        )
        for peer, theirs, target in peers
    ]
