"""Attacks on a small convolutional network for MNIST, against Foolbox and torchattacks.

Weights, radius, number of steps and step size are the same, and all attacks start at the images;
the peers attack blocks of 256. Before timing, our robust accuracy must be at most that of the peer,
and our distances at most its distances, both evaluated with the network in PyTorch. Our attack
stops when it succeeds, and theirs takes all steps; in two rows ours takes all steps, too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import data
from thetax.attack import PGD, DeepFool, perturb, untargeted
from thetax.models import CNN
from thetax.threat import Linf
from thetax.train import Silent, cross_entropy, descend, fit, log_loss

from .conv import small
from .row import Row, Work, library

IMAGES = 1024
BLOCK = 256
WIDTHS = (16, 32)
STEP = 0.01
STEPS = 40
BOX = (0.0, 1.0)
N_TRAIN = 12_000  # images, for two epochs


BOUNDARY_SHARE = 0.003  # of the images may differ by rounding


class Sample:
    """A trained network, the same in PyTorch, and correctly classified images."""

    @cached_property
    def model(self) -> CNN:
        """Ours."""
        xs, ys = data.load("mnist").train
        batch = jnp.asarray(xs[:N_TRAIN])[:, None], jnp.asarray(ys[:N_TRAIN])
        net = CNN.init(WIDTHS, classes=10, key=jr.key(0))
        iteration = descend(cross_entropy, optax.adam(2e-3))
        return fit(
            iteration, net, batch, epochs=2, batch_size=64, key=jr.key(1), progress=Silent()
        ).model

    @cached_property
    def torch_model(self) -> Any:
        """Theirs."""
        return small(library("torch"), self.model).eval()

    @cached_property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        """Correctly classified test images and their labels."""
        test = data.load("mnist").test
        assert test is not None
        xs = np.asarray(test[0][: IMAGES + 256])[:, None]
        ys = np.asarray(test[1][: IMAGES + 256])
        correct = np.asarray(jnp.argmax(jax.vmap(self.model)(jnp.asarray(xs)), axis=-1)) == ys
        return xs[correct][:IMAGES], ys[correct][:IMAGES]

    @property
    def ours(self) -> tuple[Any, Any]:
        """For JAX."""
        return jnp.asarray(self.pair[0]), jnp.asarray(self.pair[1], jnp.int32)

    def theirs(self, attack: Callable[[Any, Any], Any]) -> np.ndarray:
        """The adversarial images of an attack in PyTorch, block by block."""
        torch = library("torch")
        xs = torch.tensor(self.pair[0])
        ys = torch.tensor(self.pair[1].astype(np.int64))
        blocks = zip(xs.split(BLOCK), ys.split(BLOCK))
        return np.concatenate([attack(x, y).detach().numpy() for x, y in blocks])

    def evaluate(self, xs: Any) -> tuple[int, float]:
        """The number of correctly classified images and the mean norm of the perturbations."""
        torch = library("torch")
        with torch.no_grad():
            correct = (
                self.torch_model(torch.tensor(np.asarray(xs))).argmax(1).numpy() == self.pair[1]
            )
        norms = np.linalg.norm((np.asarray(xs) - self.pair[0]).reshape(len(correct), -1), axis=1)
        return int(correct.sum()), float(norms.mean())


@dataclass(frozen=True, eq=False)
class Comparison:
    """An attack of ours and of a peer."""

    sample: Sample
    attack: Any
    peer: Callable[[Sample], Callable[[Any, Any], Any]]  # of images and labels
    radius: float | None = None  # None for a minimum-norm attack

    def ours(self) -> np.ndarray:
        """Our adversarial images."""
        return np.asarray(perturb(self.sample.model, self.sample.ours, self.attack).xs)

    def theirs(self) -> np.ndarray:
        """The adversarial images of the peer."""
        return self.sample.theirs(self.peer(self.sample))

    def check(self) -> None:
        """Raises unless ours is as strong, but for images at the boundary: a gradient near 0 has
        another sign after another rounding.
        """
        (correct, norm), (their_correct, their_norm) = (
            self.sample.evaluate(xs) for xs in (self.ours(), self.theirs())
        )
        print(
            f"correct under attack: ours {correct}, theirs {their_correct} of {IMAGES}; mean norm: "
            f"ours {norm:.5f}, theirs {their_norm:.5f}"
        )
        allowed = their_correct + BOUNDARY_SHARE * IMAGES
        assert correct <= allowed, f"correct: ours {correct}, theirs {their_correct}"
        if self.radius is None:
            assert norm <= their_norm * (1 + 1e-4), (
                f"mean norm: ours {norm:.5f}, theirs {their_norm:.5f}"
            )
        else:
            assert np.abs(self.ours() - self.sample.pair[0]).max() <= self.radius * (1 + 1e-5)

    def timed(self, once: Callable[[], Any]) -> Callable[[], float]:
        """Milliseconds per image."""

        def measure() -> float:
            start = time.perf_counter()
            once()
            return 1e3 * (time.perf_counter() - start) / IMAGES

        return measure


def foolbox_pgd(radius: float) -> Callable[[Sample], Callable[[Any, Any], Any]]:
    """PGD of Foolbox."""

    def attack(sample):
        foolbox = library("foolbox")
        model = foolbox.PyTorchModel(sample.torch_model, bounds=BOX, device="cpu")
        pgd = foolbox.attacks.LinfPGD(abs_stepsize=STEP, steps=STEPS, random_start=False)
        return lambda xs, ys: pgd(model, xs, ys, epsilons=radius)[1]

    return attack


def torchattacks_pgd(radius: float) -> Callable[[Sample], Callable[[Any, Any], Any]]:
    """PGD of torchattacks."""
    return lambda sample: library("torchattacks").PGD(
        sample.torch_model, eps=radius, alpha=STEP, steps=STEPS, random_start=False
    )


def foolbox_deepfool(sample: Sample) -> Callable[[Any, Any], Any]:
    """DeepFool of Foolbox, without a bound on the distance."""
    foolbox = library("foolbox")
    model = foolbox.PyTorchModel(sample.torch_model, bounds=BOX, device="cpu")
    return lambda xs, ys: foolbox.attacks.L2DeepFoolAttack(steps=50, overshoot=0.02)(
        model, xs, ys, epsilons=None
    )[1]


def work(passes: float) -> Work:
    """The products of several passes through the network; weights and image are read in each."""
    first = 784 * 9 * WIDTHS[0]
    second = 196 * 9 * WIDTHS[0] * WIDTHS[1]
    weights = 9 * WIDTHS[0] + 9 * WIDTHS[0] * WIDTHS[1] + 90 * WIDTHS[1]
    return Work(
        2 * passes * (first + second + 90 * WIDTHS[1]), 4 * passes * (784 + weights / IMAGES)
    )


def describe() -> str:
    """A description of the work."""
    return (
        f"Attacks on {IMAGES:,} digits and a network of {WIDTHS[0]} and {WIDTHS[1]} channels. A "
        "step of PGD is one forward and one backward pass."
    )


def rows() -> list[Row]:
    """PGD against both peers at two radii, once with all steps, and DeepFool."""
    sample = Sample()
    peers = (("Foolbox", foolbox_pgd, 3.0), ("torchattacks", torchattacks_pgd, 5.0))

    def row(name, peer, comparison, **more):
        times = comparison.timed(comparison.ours), comparison.timed(comparison.theirs)
        return Row(name, peer, *times, "ms/image", comparison.check, pairs=3, **more)

    def pgd_rows(goal, radius, name, **more):
        attack = PGD(goal, Linf(radius), step_size=STEP, steps=STEPS, box=BOX)
        return [
            row(
                f"PGD, 40 steps, Linf {radius}{name}",
                peer,
                Comparison(sample, attack, theirs(radius), radius),
                target=target,
                **more,
            )
            for peer, theirs, target in peers
        ]

    return [
        *pgd_rows(untargeted(), 0.3, ""),
        *pgd_rows(untargeted(), 0.1, ""),
        *pgd_rows(log_loss, 0.1, ", all steps", work=work(2 * STEPS)),
        row(
            "DeepFool, 50 steps, L2",
            "Foolbox",
            Comparison(sample, DeepFool(box=BOX), foolbox_deepfool),
            target=5.0,
        ),
    ]
