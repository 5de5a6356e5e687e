"""Chapter 13: adversarial attacks on a classifier of digits, and adversarial training.

Expected results: the accuracy of the network with standard training is high on clean digits and low
under attack; adversarial training lowers the clean accuracy a little and raises the robust accuracy
a lot; the certified accuracy is a lower bound of the robust one. `python chapter_13.py FOLDER`
saves the figure there, by default in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import attack, certify, data, threat, train
from thetax.models import MLP
from thetax.plot import Chart, Panel, draw

BOX = (0.0, 1.0)
RADIUS = 0.1


def fit_network(objective, batch, key, epochs):
    """A network with two hidden layers, trained by Adam."""
    key_net, key_fit = jr.split(key)
    iteration = train.descend(objective, optax.adam(2e-3))
    net = MLP.init(64, 64, 64, 10, key=key_net)
    return train.fit(
        iteration, net, batch, epochs=epochs, batch_size=64, key=key_fit, progress=train.Silent()
    ).model


def main(folder: str | None = None, *, epochs: int = 30) -> dict[str, float]:
    key_split, key_net, key_attack = jr.split(jr.key(0), 3)
    xs, ys = data.load("digits").train
    xs = jnp.asarray(xs, jnp.float32).reshape(len(xs), 64) / np.max(xs)
    train_set, test_set = data.split((xs, jnp.asarray(ys)), 0.8, key=key_split)
    test = (test_set[0][:200], test_set[1][:200])
    results = {}
    curves = {}

    # §13.2: adversarial training
    ball = threat.Linf(RADIUS)
    pgd = attack.PGD(train.log_loss, ball, step_size=RADIUS / 3, steps=5, box=BOX, output="last")
    nets = {
        "standard": fit_network(train.cross_entropy, train_set, key_net, epochs),
        "robust": fit_network(
            attack.adversarial_objective(train.cross_entropy, pgd), train_set, key_net, epochs
        ),
    }
    for name, net in nets.items():
        robustness = attack.robustness(
            net, test, ball, box=BOX, steps=20, n_check_examples=50, key=key_attack
        )
        certified = certify.certified_accuracy(net, test, threat.Linf(0.03), box=BOX)
        results |= {
            f"{name} clean": robustness.clean_accuracy,
            f"{name} under attack": robustness.robust_accuracy,
            f"{name} certified": certified.accuracy,
        }
        print(
            f"{name} training: accuracy {robustness.clean_accuracy:.1%}, under attack within "
            f"{RADIUS} {robustness.robust_accuracy:.1%}, certified within 0.03 "
            f"{certified.accuracy:.1%}"
        )
        for warning in robustness.warnings:
            print(warning)

        # §13.1: the distance to the nearest adversarial example of each digit
        nearest = attack.perturb(net, test, attack.DeepFool(threat.L2, box=BOX))
        distances = np.sort(np.where(nearest.success, nearest.distance, np.inf))
        results[f"{name} distance"] = float(np.median(distances))
        curves[name] = distances, 1 - np.arange(len(distances)) / len(distances)
        print(
            f"  median distance to the nearest adversarial example, by DeepFool: "
            f"{np.median(distances):.2f}"
        )

    output = Path(folder or tempfile.mkdtemp())
    panel = Panel("Euclidean distance", "accuracy within this distance", lines=curves)
    draw(Chart(panel)).savefig(output / "robust.png", dpi=150)
    print(f"figures in {output}: robust.png")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])
