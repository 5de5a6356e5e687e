"""Chapter 8: initialisation, weight decay, dropout, batch normalisation and distillation.

Expected results: He initialisation keeps the signal in a deep network and LeCun's does not; weight
decay, like early stopping, shrinks mainly the flat directions; MC dropout is more uncertain about
its mistakes; a distilled student is better than one that is trained on labels. `python chapter_8.py
FOLDER` saves the figures there, by default in a temporary folder.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from thetax import data, explain, layers, train
from thetax.core import predict, run
from thetax.models import MLP
from thetax.plot import draw

N_TRAIN = 200  # labelled digits


def learn(objective, model, batch, *, steps, learning_rate=3e-3, key):
    """Full-batch Adam, compiled as one program."""

    def fit(model, batch):
        step = train.descend(
            lambda model, _, key: objective(model, batch, key=key), optax.adam(learning_rate)
        )
        step = train.per_member(step) if isinstance(model, layers.Ensemble) else step
        return run(step, model, jnp.zeros(steps), key=key)[0].model

    return jax.jit(fit)(model, batch)


def main(folder: str | None = None, *, steps: int = 300) -> dict[str, float]:
    key_data, key_net, key_fit, key = jr.split(jr.key(0), 4)
    xs, ys = data.load("digits").train
    digits = jnp.asarray(xs), jnp.asarray(ys)
    train_set, test_set = data.split(digits, N_TRAIN / len(ys), key=key_data, stratify=ys)
    error = lambda model: (
        100 * train.evaluate(model, test_set, {"error": train.error_rate})["error"]
    )
    results = {}

    # §8.1: the scale of the signal at initialisation
    for name, initialiser in {"He": layers.he, "LeCun": layers.lecun}.items():
        deep = MLP.init(64, *[64] * 20, 10, initialiser=initialiser, key=key_net)
        results[name] = float(jnp.square(predict(deep, train_set[0])).mean())
        print(f"{name:>8}: mean square after 20 ReLU layers {results[name]:.1e}")

    # §8.2, §8.3: weight decay and early stopping shrink the flat directions
    decay = 1e-3
    decayed = learn(
        train.weight_decay(train.cross_entropy, strength=decay),
        MLP.init(64, 32, 10, key=key_net),
        train_set,
        steps=steps,
        key=key_fit,
    )
    shrinkage = explain.effective_parameters(
        train.cross_entropy, decayed, train_set, strength=decay, key=key
    )
    results["weight decay"] = error(decayed)
    print(
        f"weight decay {decay:g}: test error {results['weight decay']:.1f} %, "
        f"{100 * shrinkage.factors[0]:.1f} % of the sharpest direction is kept, "
        f"{shrinkage.effective:.0f} of {shrinkage.parameters} parameters are effective"
    )
    learning_rate = 0.1 / shrinkage.curvatures[0]
    equivalent_steps = explain.weight_decay_equivalent_steps(
        shrinkage.curvatures[:1], learning_rate=learning_rate, strength=decay
    )[0]
    print(
        f"equivalent early stopping: {equivalent_steps:.0f} steps of gradient descent at learning "
        f"rate {learning_rate:.2g}"
    )

    # §8.4: dropout, and its uncertainty
    objective = train.smooth_labels(
        train.with_augmentation(train.cross_entropy, data.augment.noise(scale=0.1)),
        10,
        strength=0.1,
    )
    dropped = learn(
        objective,
        MLP.init(64, 128, 10, dropout=0.3, key=key_net),
        train_set,
        steps=steps,
        key=key_fit,
    )
    uncertainty = explain.dropout_uncertainty(dropped, test_set, n_samples=30, key=key)
    results |= {"dropout": error(dropped), "AUROC": uncertainty.auroc}
    print(
        f"dropout, noise and label smoothing (§8.7, §8.8): test error {results['dropout']:.1f} %, "
        f"AUROC of its uncertainty for mistakes {uncertainty.auroc:.2f}"
    )

    # §8.5: batch normalisation as an affine map
    normalised = MLP.init(64, 32, 10, normalise=layers.BatchNorm.init, key=key_net)
    folded = layers.fold_batch_norm(normalised, train_set[0])
    results["folded"] = float(
        jnp.abs(predict(normalised, train_set[0]) - predict(folded, train_set[0])).max()
    )
    print(f"folding batch normalisation changes the outputs by {results['folded']:.0e}")

    # §8.9: distillation of an ensemble without labels
    ensemble = layers.Ensemble.init(
        lambda key: MLP.init(64, 128, 10, key=key), 5, pool=layers.mean_probabilities, key=key_net
    )
    teacher = learn(train.cross_entropy, ensemble, train_set, steps=steps, key=key_fit)
    student = MLP.init(64, 8, 10, key=key)
    soft_loss = train.batch_mean(partial(train.distillation_loss, temperature=4.0))
    soft_labels = test_set[0], predict(teacher, test_set[0])
    results["teacher"] = error(teacher)
    results["student"] = error(
        learn(
            train.cross_entropy,
            student,
            train_set,
            steps=2 * steps,
            learning_rate=1e-2,
            key=key_fit,
        )
    )
    results["distilled"] = error(
        learn(soft_loss, student, soft_labels, steps=2 * steps, learning_rate=1e-2, key=key_fit)
    )
    print(
        f"test error of the teacher {results['teacher']:.1f} %, of a student with eight units "
        f"{results['student']:.1f} %, distilled {results['distilled']:.1f} %"
    )

    output = Path(folder or tempfile.mkdtemp())
    draw(shrinkage).savefig(output / "shrinkage.png", dpi=150)
    draw(uncertainty).savefig(output / "uncertainty.png", dpi=150)
    print(f"figures in {output}: shrinkage.png and uncertainty.png")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])
