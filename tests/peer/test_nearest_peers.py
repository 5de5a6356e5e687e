"""The nearest wrong inputs beside Foolbox's and torchattacks', on one network and its twin."""

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from thetax.attack import CarliniWagner, DeepFool, perturb
from thetax.layers import Chain, Linear, relu
from thetax.threat import Linf

torch = pytest.importorskip("torch")
foolbox = pytest.importorskip("foolbox")
torchattacks = pytest.importorskip("torchattacks")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@cache
def twins():
    """A network of torch, trained on digits, the same as ours, and 60 digits that both get
    right.
    """
    torch.manual_seed(0)
    data: Any = load_digits()
    xs = torch.tensor(data.data / 16, dtype=torch.float32)
    ys = torch.tensor(data.target)
    net = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(6):
        for rows in torch.randperm(1500).split(64):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(net(xs[rows]), ys[rows]).backward()
            adam.step()
    net.eval()
    array = lambda tensor: jnp.asarray(tensor.detach().numpy())
    first, last = (Linear(array(net[i].weight), array(net[i].bias)) for i in (0, 2))
    ours = Chain(first, relu, last)
    right = (net(xs[1500:]).argmax(1) == ys[1500:]).nonzero()[:60, 0] + 1500
    return net, ours, xs[right], ys[right]


def ours_of(attack):
    """Our perturbed digits, for torch."""
    _, model, xs, ys = twins()
    ends = perturb(model, (jnp.asarray(xs.numpy()), jnp.asarray(ys.numpy(), jnp.int32)), attack)
    return torch.tensor(np.asarray(ends))


def theirs_of(attack):
    net, _, xs, ys = twins()
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    return attack.run(model, xs, foolbox.criteria.Misclassification(ys))


def summary(ends, order):
    """The mean norm, and the share that is wrong."""
    net, _, xs, ys = twins()
    norms = (ends - xs).norm(p=order, dim=1)
    return norms.mean().item(), (net(ends).argmax(1) != ys).float().mean().item()


@pytest.mark.parametrize(
    ("attack", "peer", "order"),
    [
        (DeepFool(box=(0.0, 1.0)), foolbox.attacks.L2DeepFoolAttack(steps=50, overshoot=0.02), 2),
        (
            DeepFool(Linf, box=(0.0, 1.0)),
            foolbox.attacks.LinfDeepFoolAttack(steps=50, overshoot=0.02),
            float("inf"),
        ),
    ],
    ids=["L2", "Linf"],
)
def test_deepfool_goes_no_further_than_foolbox(attack, peer, order):
    (ours, wrong), (theirs, _) = summary(ours_of(attack), order), summary(theirs_of(peer), order)
    print(f"DeepFool {ours:.6f}, Foolbox {theirs:.6f}")
    assert wrong == 1
    assert ours <= theirs * (1 + 1e-6)


def test_carlini_wagner_goes_no_further_than_foolbox():
    """As many rounds of as many steps, from the same c, at the same rate."""
    size = {"steps": 200, "confidence": 0.0}
    peer = foolbox.attacks.L2CarliniWagnerAttack(
        binary_search_steps=6, stepsize=0.01, initial_const=0.1, abort_early=False, **size
    )
    attack = CarliniWagner(
        binary_search_steps=6, learning_rate=0.01, initial_const=0.1, box=(0.0, 1.0), **size
    )
    (ours, wrong), (theirs, caught) = summary(ours_of(attack), 2), summary(theirs_of(peer), 2)
    print(f"CarliniWagner {ours:.6f} ({wrong:.3f} wrong), Foolbox {theirs:.6f} ({caught:.3f})")
    assert wrong >= caught
    assert ours <= theirs


def test_carlini_wagner_goes_no_further_than_torchattacks():
    """There is no search for c there: one round of 300 steps, where both succeed."""
    net, _, xs, ys = twins()
    theirs = torchattacks.CW(net, c=1, kappa=0, steps=300, lr=0.01)(xs, ys)
    ours = ours_of(
        CarliniWagner(
            steps=300, binary_search_steps=1, learning_rate=0.01, initial_const=1.0, box=(0.0, 1.0)
        )
    )
    wrong, caught = (net(ends).argmax(1) != ys for ends in (ours, theirs))
    near, far = ((ends - xs)[wrong & caught].norm(dim=1).mean().item() for ends in (ours, theirs))
    share = wrong.float().mean().item()
    other = caught.float().mean().item()
    print(f"CarliniWagner {near:.6f} ({share:.3f} wrong), torchattacks {far:.6f} ({other:.3f})")
    assert share >= other
    assert near <= far
