"""The same perturbations as torchattacks, and attacks at least as strong as theirs and Foolbox's,
on the same nets.
"""

from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data
from thetax.attack import (
    APGD,
    PGD,
    MultiTargeted,
    Square,
    auto_attack,
    fgsm,
    margin_loss,
    perturb,
    untargeted,
    via_target,
)
from thetax.layers import Chain, Convolution, Linear, relu
from thetax.threat import L2, Linf
from thetax.train import log_loss

torch = pytest.importorskip("torch")
torchattacks = pytest.importorskip("torchattacks")
foolbox = pytest.importorskip("foolbox")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

N = 64
BOX = (0.0, 1.0)
KEY = jr.key(0)
EPSILON = {"Linf": 0.1, "L2": 0.6}
BALLS = {"Linf": Linf(0.1), "L2": L2(0.6)}
each_net = pytest.mark.parametrize("kind", ["mlp", "cnn"])
each_norm = pytest.mark.parametrize("norm", BALLS)


@cache
def digits():
    xs, ys = data.load("digits").train
    return np.asarray(xs, np.float32)[:, None], np.asarray(ys)


def images():
    xs, ys = digits()
    return torch.tensor(xs[:N]), torch.tensor(ys[:N], dtype=torch.long)


@cache
def twins(kind):
    """A net of torch, trained on digits for a second or two, and the same of ours."""
    torch.manual_seed(0)
    nn = torch.nn
    layers = {
        "mlp": [nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)],
        "cnn": [
            nn.Conv2d(1, 8, 3),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 10),
        ],
    }[kind]
    theirs = nn.Sequential(*layers)
    xs = torch.tensor(digits()[0])
    ys = torch.tensor(digits()[1], dtype=torch.long)
    descent = torch.optim.Adam(theirs.parameters(), 3e-3)
    for _ in range(150):
        descent.zero_grad()
        nn.functional.cross_entropy(theirs(xs), ys).backward()
        descent.step()
    ours = Chain(*(copied(layer) for layer in theirs.eval()))
    np.testing.assert_allclose(
        jax.vmap(ours)(digits()[0][:N]), theirs(xs[:N]).detach().numpy(), atol=2e-5
    )
    return theirs, ours


def copied(layer):
    if isinstance(layer, torch.nn.Flatten):
        return jnp.ravel
    if isinstance(layer, torch.nn.ReLU):
        return relu
    W, b = (jnp.asarray(part.detach().numpy()) for part in (layer.weight, layer.bias))
    return Linear(W, b) if W.ndim == 2 else Convolution(W, b, boundary="valid")


def ours_on(attack, net, key: jax.Array | None = KEY):
    xs, ys = digits()
    return np.asarray(perturb(net, (xs[:N], ys[:N]), attack, key=key))


def robust(net, points):
    """Which are still told rightly, judged by one net for all attacks."""
    return np.asarray(jax.vmap(net)(jnp.asarray(points)).argmax(axis=1)) == digits()[1][:N]


def valid(points, norm):
    eta = (np.asarray(points) - digits()[0][:N]).reshape(N, -1)
    size = np.abs(eta).max(axis=1) if norm == "Linf" else np.linalg.norm(eta, axis=1)
    return (
        (size <= EPSILON[norm] * (1 + 1e-5)).all() and np.min(points) >= 0 and np.max(points) <= 1
    )


@each_net
def test_the_fast_gradient_sign_method_is_that_of_torchattacks(kind):
    theirs, ours = twins(kind)
    found = torchattacks.FGSM(theirs, eps=0.1)(*images()).detach().numpy()
    np.testing.assert_allclose(
        ours_on(fgsm(log_loss, Linf(0.1), box=BOX), ours, None), found, atol=1e-5
    )


@each_net
def test_projected_ascent_from_the_input_is_that_of_torchattacks(kind):
    theirs, ours = twins(kind)
    found = (
        torchattacks.PGD(theirs, eps=0.1, alpha=0.02, steps=10, random_start=False)(*images())
        .detach()
        .numpy()
    )
    attack = PGD(log_loss, Linf(0.1), step_size=0.02, steps=10, box=BOX, output="last")
    np.testing.assert_allclose(ours_on(attack, ours, None), found, atol=1e-5)


@each_net
def test_projected_ascent_from_the_same_random_start_is_that_of_torchattacks(kind):
    """Where no pixel meets the range, the start is a draw of torch's, and our ascent begins
    there.
    """
    theirs, ours = twins(kind)
    xs, ys = images()
    xs = 0.25 + xs / 2
    torch.manual_seed(1)
    found = (
        torchattacks.PGD(theirs, eps=0.1, alpha=0.02, steps=10, random_start=True)(xs, ys)
        .detach()
        .numpy()
    )
    torch.manual_seed(1)
    start = torch.empty_like(xs).uniform_(-0.1, 0.1).numpy()
    again = jax.vmap(lambda x, eta, y: _from(ours, x, eta, y))(
        xs.numpy(), start, ys.numpy().astype(np.int32)
    )
    np.testing.assert_allclose(again, found, atol=1e-5)


def _from(net, x, eta, y):
    """Ascent from a shift is that from the shifted input in the ball around the other one."""
    shifted = lambda z: net(z + eta)
    ball = _Around(0.1, -eta)
    return PGD(log_loss, ball, step_size=0.02, steps=10, output="last")(shifted, x, y) + eta


class _Around(Linf):
    centre: jax.Array

    def project(self, z, limits=None):
        return jnp.clip(z, self.centre - self.radius, self.centre + self.radius)


@each_net
def test_euclidean_ascent_is_that_of_torchattacks_where_the_range_is_far(kind):
    """At the edge of the range theirs clips what it projected before, ours projects onto both at
    once.
    """
    theirs, ours = twins(kind)
    xs, ys = images()
    xs = 0.25 + xs / 2
    found = (
        torchattacks.PGDL2(theirs, eps=0.2, alpha=0.05, steps=10, random_start=False)(xs, ys)
        .detach()
        .numpy()
    )
    attack = PGD(log_loss, L2(0.2), step_size=0.05, steps=10, output="last", box=BOX)
    again = np.asarray(perturb(ours, (xs.numpy(), ys.numpy().astype(np.int32)), attack))
    np.testing.assert_allclose(again, found, atol=1e-5)


@each_net
@each_norm
def test_adaptive_ascent_is_as_strong_as_theirs(kind, norm):
    theirs, ours = twins(kind)
    peers = {
        "torchattacks": torchattacks.APGD(theirs, norm=norm, eps=EPSILON[norm], steps=20)(*images())
        .detach()
        .numpy(),
        "torchattacks, targeted": torchattacks.APGDT(
            theirs, norm=norm, eps=EPSILON[norm], steps=20
        )(*images())
        .detach()
        .numpy(),
    }
    peers["foolbox"] = fooled(theirs, norm, steps=20)
    own = {
        "torchattacks": APGD(untargeted(), BALLS[norm], steps=20, box=BOX),
        "torchattacks, targeted": MultiTargeted(APGD(via_target(), BALLS[norm], steps=20, box=BOX)),
        "foolbox": APGD(untargeted(), BALLS[norm], steps=20, box=BOX),
    }
    for name, attack in own.items():
        found = ours_on(attack, ours)
        left = robust(ours, found).sum()
        left_by_peer = robust(ours, peers[name]).sum()
        print(f"{kind} {norm} {name}: {left} of {N} left, by the peer {left_by_peer}")
        assert valid(found, norm)
        assert left <= left_by_peer + (0 if "targeted" in name else 1)


def fooled(theirs, norm, steps):
    model = foolbox.PyTorchModel(theirs, bounds=BOX, device="cpu")
    attack = (
        foolbox.attacks.LinfPGD(steps=steps)
        if norm == "Linf"
        else foolbox.attacks.L2PGD(steps=steps)
    )
    return attack(model, *images(), epsilons=EPSILON[norm])[1].detach().numpy()


@each_net
def test_square_is_as_strong_as_theirs(kind):
    theirs, ours = twins(kind)
    peer = (
        torchattacks.Square(theirs, norm="Linf", eps=0.1, n_queries=1000)(*images())
        .detach()
        .numpy()
    )
    found = ours_on(Square(untargeted(margin_loss), Linf(0.1), n_queries=1000, box=BOX), ours)
    left = robust(ours, found).sum()
    left_by_peer = robust(ours, peer).sum()
    print(f"{kind} square: {left} of {N} left, by the peer {left_by_peer}")
    assert valid(found, "Linf")
    assert left <= left_by_peer + 1


@each_net
@each_norm
def test_the_ensemble_is_as_strong_as_theirs(kind, norm):
    """AutoAttack of torchattacks (APGD, APGD targeted, FAB, Square) and Foolbox's ascent of as many
    steps.
    """
    theirs, ours = twins(kind)
    peer = (
        torchattacks.AutoAttack(theirs, norm=norm, eps=EPSILON[norm], seed=0)(*images())
        .detach()
        .numpy()
    )
    fool = fooled(theirs, norm, steps=100)
    found = ours_on(auto_attack(BALLS[norm], steps=50, n_queries=1000, box=BOX), ours)
    left = robust(ours, found).sum()
    left_by_peer = robust(ours, peer).sum()
    print(
        f"{kind} {norm} ensemble: {left} of {N} left; AutoAttack {left_by_peer}, Foolbox "
        f"{robust(ours, fool).sum()}"
    )
    assert valid(found, norm)
    assert left <= left_by_peer
    assert left <= robust(ours, fool).sum()
