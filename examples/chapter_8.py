"""Chapter 8: what the tricks of the trade do to one network, from its first weights to a student of
its own.

Expect He's law to carry a signal through depth where LeCun's loses it, decay to leave the sharp
directions alone and stopping to do the same, dropout to doubt where it errs, and a distilled
student to beat one that has only labels. `python chapter_8.py FOLDER` keeps the pictures there,
otherwise they go to a temporary folder.
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

FEW = 200  # labelled digits


def learn(objective, model, batch, *, steps, rate=3e-3, key):
    """Adam on the whole batch, as one program."""

    def descended(model, batch):
        step = train.descend(
            lambda model, _, key: objective(model, batch, key=key), optax.adam(rate)
        )
        step = train.restarts(step) if isinstance(model, layers.Ensemble) else step
        return run(step, model, jnp.zeros(steps), key=key)[0].model

    return jax.jit(descended)(model, batch)


def main(folder: str | None = None, steps: int = 300) -> dict[str, float]:
    key_data, key_net, key_fit, key = jr.split(jr.key(0), 4)
    xs, ys = data.load("digits").train
    few, rest = data.split((jnp.asarray(xs), jnp.asarray(ys)), FEW / len(ys), key=key_data, by=ys)
    wrong = lambda model: 100 * train.evaluate(model, rest, {"error": train.error_rate})["error"]
    found = {}

    # §8.1: the first weights decide what reaches the last layer
    for name, initialiser in {"He": layers.he, "LeCun": layers.lecun}.items():
        deep = MLP.init(64, *[64] * 20, 10, initialiser=initialiser, key=key_net)
        found[name] = float(jnp.square(predict(deep, few[0])).mean())
        print(f"{name:>8}: after 20 layers of ReLU the mean square is {found[name]:.1e}")

    # §8.2, §8.3: decay and stopping shrink the flat directions
    decay = 1e-3
    plain = learn(
        train.weight_decay(train.cross_entropy, strength=decay),
        MLP.init(64, 32, 10, key=key_net),
        few,
        steps=steps,
        key=key_fit,
    )
    shrunk = explain.shrinkage(train.cross_entropy, plain, few, strength=decay, key=key)
    found["plain"] = wrong(plain)
    print(
        f"decay {decay:g}: {found['plain']:.1f} % wrong; it leaves {100 * shrunk.factors[0]:.1f} "
        "% of the sharpest "
        f"direction, and about {shrunk.effective:.0f} of {shrunk.parameters} parameters count"
    )
    rate = 0.1 / shrunk.curvatures[0]
    steps_like = explain.equivalent_steps(shrunk.curvatures[:1], rate=rate, strength=decay)[0]
    print(f"as much is left there by {steps_like:.0f} steps of descent at rate {rate:.2g}")

    # §8.4: dropout, a crowd of thinned networks that can doubt
    tricks = train.smooth_labels(
        train.augmented(train.cross_entropy, data.augment.noise(scale=0.1)), 10, strength=0.1
    )
    dropped = learn(
        tricks, MLP.init(64, 128, 10, dropout=0.3, key=key_net), few, steps=steps, key=key_fit
    )
    doubt = explain.doubt(dropped, rest, draws=30, key=key)
    found |= {"dropout": wrong(dropped), "ranking": doubt.ranking}
    print(
        f"dropout, noise and smoothing (§8.7, §8.8): {found['dropout']:.1f} % wrong, and a mistake "
        f"is doubted more than a right answer {100 * doubt.ranking:.0f} % of the time"
    )

    # §8.5: a batch norm is an affine map once the data are known
    normal = MLP.init(64, 32, 10, normalise=layers.BatchNorm.init, key=key_net)
    folded = layers.fold(normal, few[0])
    found["folded"] = float(jnp.abs(predict(normal, few[0]) - predict(folded, few[0])).max())
    print(f"folding its batch norm changes the network's outputs by {found['folded']:.0e}")

    # §8.9: a student of a crowd, which needs no labels
    crowd = layers.Ensemble.init(
        lambda key: MLP.init(64, 128, 10, key=key), 5, pool=layers.mixture, key=key_net
    )
    teacher = learn(train.cross_entropy, crowd, few, steps=steps, key=key_fit)
    student = MLP.init(64, 8, 10, key=key)
    soft = train.average(partial(train.tempered_loss, temperature=4.0))
    asked = rest[0], predict(teacher, rest[0])
    found["teacher"] = wrong(teacher)
    found["student"] = wrong(
        learn(train.cross_entropy, student, few, steps=2 * steps, rate=1e-2, key=key_fit)
    )
    found["distilled"] = wrong(learn(soft, student, asked, steps=2 * steps, rate=1e-2, key=key_fit))
    print(
        f"teacher {found['teacher']:.1f} %, a student of eight units {found['student']:.1f} %, "
        f"taught by the crowd on digits without labels {found['distilled']:.1f} %"
    )

    place = Path(folder or tempfile.mkdtemp())
    draw(shrunk).savefig(place / "shrinkage.png", dpi=150)
    draw(doubt).savefig(place / "doubt.png", dpi=150)
    print(f"drawn in {place}: shrinkage.png and doubt.png")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
