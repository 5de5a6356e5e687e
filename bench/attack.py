"""Attacks on a small convolutional network for MNIST, beside Foolbox's and torchattacks': the same
weights, the same radius, as many steps of the same length.

Both sides attack the same images and begin at the images themselves, the peers with blocks of 256.
Before they are timed, ours must leave no more images right than theirs, and its nearest wrong
images must be no further away; the network that judges them is always PyTorch's. Ours stops with an
image that is wrong, and theirs goes on; in two rows ours goes on too.
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
LEARNT = 12_000  # images, in two passes


class Sample:
    """A trained network, its twin, and images that are right."""

    @cached_property
    def model(self) -> CNN:
        """Ours."""
        xs, ys = data.load("mnist").train
        chosen = jnp.asarray(xs[:LEARNT])[:, None], jnp.asarray(ys[:LEARNT])
        net = CNN.init(WIDTHS, classes=10, key=jr.key(0))
        iteration = descend(cross_entropy, optax.adam(2e-3))
        return fit(
            iteration, net, chosen, epochs=2, batch_size=64, key=jr.key(1), progress=Silent()
        ).model

    @cached_property
    def twin(self) -> Any:
        """Theirs."""
        return small(library("torch"), self.model).eval()

    @cached_property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        """Test images and their labels."""
        test = data.load("mnist").test
        assert test is not None
        xs = np.asarray(test[0][: IMAGES + 256])[:, None]
        ys = np.asarray(test[1][: IMAGES + 256])
        right = np.asarray(jnp.argmax(jax.vmap(self.model)(jnp.asarray(xs)), axis=-1)) == ys
        return xs[right][:IMAGES], ys[right][:IMAGES]

    @property
    def ours(self) -> tuple[Any, Any]:
        """For JAX."""
        return jnp.asarray(self.pair[0]), jnp.asarray(self.pair[1], jnp.int32)

    def theirs(self, attack: Callable[[Any, Any], Any]) -> np.ndarray:
        """What a function of images and labels makes of them, in PyTorch, block by block."""
        torch = library("torch")
        xs = torch.tensor(self.pair[0])
        ys = torch.tensor(self.pair[1].astype(np.int64))
        blocks = zip(xs.split(BLOCK), ys.split(BLOCK))
        return np.concatenate([attack(x, y).detach().numpy() for x, y in blocks])

    def left(self, xs: Any) -> tuple[int, float]:
        """How many images PyTorch's network still has right, and how far they were moved on
        average.
        """
        torch = library("torch")
        with torch.no_grad():
            right = self.twin(torch.tensor(np.asarray(xs))).argmax(1).numpy() == self.pair[1]
        moved = np.linalg.norm((np.asarray(xs) - self.pair[0]).reshape(len(right), -1), axis=1)
        return int(right.sum()), float(moved.mean())


@dataclass(frozen=True, eq=False)
class Contest:
    """One attack of ours and of a peer."""

    sample: Sample
    attack: Any
    peer: Callable[[Sample], Callable[[Any, Any], Any]]  # of images and labels
    radius: float | None = None  # or it is judged by how far it goes

    def ours(self) -> np.ndarray:
        """Our perturbed images."""
        return np.asarray(perturb(self.attack, self.sample.model, self.sample.ours))

    def theirs(self) -> np.ndarray:
        """Theirs."""
        return self.sample.theirs(self.peer(self.sample))

    def check(self) -> None:
        """Raises unless ours is as strong."""
        (left, far), (other, further) = (
            self.sample.left(xs) for xs in (self.ours(), self.theirs())
        )
        print(
            f"left right: ours {left}, theirs {other} of {IMAGES}; mean norm: ours {far:.5f}, "
            f"theirs {further:.5f}"
        )
        assert left <= other, f"{left} images are left right, and {other} by the peer"
        if self.radius is None:
            assert far <= further * (1 + 1e-4), (
                f"the mean norm is {far:.5f}, and {further:.5f} by the peer"
            )
        else:
            assert np.abs(self.ours() - self.sample.pair[0]).max() <= self.radius * (1 + 1e-5)

    def timed(self, once: Callable[[], Any]) -> Callable[[], float]:
        """Milliseconds an image."""

        def measure() -> float:
            began = time.perf_counter()
            once()
            return 1e3 * (time.perf_counter() - began) / IMAGES

        return measure


def foolbox_pgd(radius: float) -> Callable[[Sample], Callable[[Any, Any], Any]]:
    """Foolbox's projected ascent."""

    def attack(sample):
        foolbox = library("foolbox")
        model = foolbox.PyTorchModel(sample.twin, bounds=BOX, device="cpu")
        ascent = foolbox.attacks.LinfPGD(abs_stepsize=STEP, steps=STEPS, random_start=False)
        return lambda xs, ys: ascent(model, xs, ys, epsilons=radius)[1]

    return attack


def torchattacks_pgd(radius: float) -> Callable[[Sample], Callable[[Any, Any], Any]]:
    """That of torchattacks."""
    return lambda sample: library("torchattacks").PGD(
        sample.twin, eps=radius, alpha=STEP, steps=STEPS, random_start=False
    )


def foolbox_deepfool(sample: Sample) -> Callable[[Any, Any], Any]:
    """Foolbox's DeepFool, to any distance."""
    foolbox = library("foolbox")
    model = foolbox.PyTorchModel(sample.twin, bounds=BOX, device="cpu")
    return lambda xs, ys: foolbox.attacks.L2DeepFoolAttack(steps=50, overshoot=0.02)(
        model, xs, ys, epsilons=None
    )[1]


def work(passes: float) -> Work:
    """The products of so many passes through the network; its weights and an image once a pass."""
    first = 784 * 9 * WIDTHS[0]
    second = 196 * 9 * WIDTHS[0] * WIDTHS[1]
    weights = 9 * WIDTHS[0] + 9 * WIDTHS[0] * WIDTHS[1] + 90 * WIDTHS[1]
    return Work(
        2 * passes * (first + second + 90 * WIDTHS[1]), 4 * passes * (784 + weights / IMAGES)
    )


def count() -> str:
    """What is measured."""
    return (
        f"Attacks on {IMAGES:,} digits and a network of {WIDTHS[0]} and {WIDTHS[1]} channels. A "
        "step of projected ascent is a pass forwards and one backwards."
    )


def rows() -> list[Row]:
    """Projected ascent beside both, at two radii and once to the end, and DeepFool."""
    sample = Sample()
    peers = (("Foolbox", foolbox_pgd, 3.0), ("torchattacks", torchattacks_pgd, 5.0))

    def row(name, peer, contest, **more):
        times = contest.timed(contest.ours), contest.timed(contest.theirs)
        return Row(name, peer, *times, "ms/image", contest.check, pairs=3, **more)

    def ascents(goal, radius, name, **more):
        attack = PGD(goal, Linf(radius), step_size=STEP, steps=STEPS, box=BOX)
        return [
            row(
                f"PGD, 40 steps, Linf {radius}{name}",
                peer,
                Contest(sample, attack, theirs(radius), radius),
                target=target,
                **more,
            )
            for peer, theirs, target in peers
        ]

    return [
        *ascents(untargeted(), 0.3, ""),
        *ascents(untargeted(), 0.1, ""),
        *ascents(log_loss, 0.1, ", to the end", work=work(2 * STEPS)),
        row(
            "DeepFool, 50 steps, L2",
            "Foolbox",
            Contest(sample, DeepFool(box=BOX), foolbox_deepfool),
            target=5.0,
        ),
    ]
