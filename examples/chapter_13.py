"""Chapter 13: digits that are made wrong by changes too small to matter, and a network that was
trained against them.

Expect the plain network to be right on nearly all digits and, within a radius at which they still
look the same, on few; the hardened one to be a little worse on clean digits and far better there;
and what is certified to lie below what no attack has broken. `python chapter_13.py FOLDER` keeps
the pictures there, otherwise they go to a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import attack, certify, data, threat, train
from thetax.core import predict
from thetax.models import MLP
from thetax.plot import Chart, Panel, draw

BOX = (0.0, 1.0)
RADIUS = 0.1


def trained(objective, pair, key, epochs):
    """A network of two hidden layers, by Adam."""
    key_net, key_fit = jr.split(key)
    iteration = train.descend(objective, optax.adam(2e-3))
    net = MLP.init(64, 64, 64, 10, key=key_net)
    return train.fit(
        iteration, net, pair, epochs=epochs, batch_size=64, key=key_fit, progress=train.Silent()
    ).model


def main(folder: str | None = None, epochs: int = 30) -> dict[str, float]:
    key_split, key_net, key_attack = jr.split(jr.key(0), 3)
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs, jnp.float32).reshape(len(xs), 64) / np.max(xs)
    learnt, (rest, truth) = data.split((xs, jnp.asarray(ys)), 0.8, key=key_split)
    some = (rest[:200], truth[:200])
    found = {}
    curves = {}

    # §13.2: training on the worst input nearby
    ball = threat.Linf(RADIUS)
    worst = attack.PGD(train.log_loss, ball, step_size=RADIUS / 3, steps=5, box=BOX, output="last")
    nets = {
        "plain": trained(train.cross_entropy, learnt, key_net, epochs),
        "hardened": trained(
            attack.adversarial_objective(train.cross_entropy, worst), learnt, key_net, epochs
        ),
    }
    for name, net in nets.items():
        judged = attack.robustness(net, some, ball, box=BOX, steps=20, trial=50, key=key_attack)
        sure = certify.certified_accuracy(net, some, threat.Linf(0.03), box=BOX)
        found |= {
            f"{name} clean": judged.clean,
            f"{name} robust": judged.robust,
            f"{name} certified": sure.accuracy,
        }
        print(
            f"{name}: {judged.clean:.1%} right, {judged.robust:.1%} under attack within {RADIUS}; "
            f"certified within 0.03: {sure.accuracy:.1%}"
        )
        for warning in judged.warnings:
            print(warning)

        # §13.1: the nearest wrong input of each digit
        near = attack.perturb(attack.DeepFool(threat.L2, box=BOX), net, some)
        fooled = np.argmax(np.asarray(predict(net, near)), axis=-1) != np.asarray(some[1])
        distances = np.sort(
            np.where(fooled, np.linalg.norm(np.asarray(near - some[0]), axis=1), np.inf)
        )
        found[f"{name} distance"] = float(np.median(distances))
        curves[name] = distances, 1 - np.arange(len(distances)) / len(distances)
        print(
            f"  the nearest wrong input that DeepFool finds is {np.median(distances):.2f} away, "
            "in the median"
        )

    place = Path(folder or tempfile.mkdtemp())
    panel = Panel("Euclidean distance", "share that is right within it", lines=curves)
    draw(Chart(panel)).savefig(place / "robust.png", dpi=150)
    print(f"drawn in {place}: robust.png")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
