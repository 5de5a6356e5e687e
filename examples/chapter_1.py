"""Chapter 1: a perceptron tells two digits apart, and four memories are shown ten digits in noise."""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax import data
from thetax.core import predict
from thetax.explain import corrupt, recall
from thetax.layers import ModernHopfield
from thetax.models import Hebbian, asynchronous, fit_perceptron, hebb, pseudo_inverse
from thetax.plot import draw


def main(noise: float = 0.15) -> dict[str, float]:
    key_noise, key_sites = jr.split(jr.key(0))
    xs, ys = data.load("digits").train
    xs = xs.reshape(len(xs), -1)

    # §1.2: zeros and ones can be separated by a hyperplane, so the perceptron finds one
    two = ys < 2
    labels = np.where(ys[two] == 1, 1, -1)
    found = fit_perceptron(xs[two], labels)
    wrong = int((jnp.sign(predict(found.model, jnp.asarray(xs[two]))) != labels).sum())
    print(f"perceptron: {found.mistakes} mistakes on the way, {wrong} in the end")

    # §1.4: one digit of each kind in black and white, recalled from noise
    first = np.array([np.flatnonzero(ys == k)[1] for k in range(10)])
    patterns = jnp.where(jnp.asarray(xs[first]) > 0.5, 1.0, -1.0)
    memories = {
        "Hebb": hebb(patterns),
        "projection": pseudo_inverse(patterns),
        "modern": ModernHopfield(patterns, beta=1.0),
    }
    shown = recall(memories, patterns, corrupt(patterns, share=noise, key=key_noise))
    picture = Path(tempfile.mkdtemp()) / "recall.png"
    draw(shown).savefig(picture, dpi=150)
    for name, exact in zip(shown.names, shown.exact):
        print(f"{name}: {100 * exact:.0f} % of the digits recalled without a fault")
    print(f"drawn in {picture}")

    # the same dynamics with 10,000 sites: the couplings would be 100 million numbers, and are never formed
    many = jr.rademacher(key_sites, (1000, 10_000), float)
    rest = asynchronous(Hebbian(many), corrupt(many[0], share=0.1, key=key_noise))
    overlap = float(jnp.mean(rest.x * many[0]))
    print(f"1,000 patterns of 10,000 sites: overlap {overlap:.4f} after {rest.flips} flips")
    return {"perceptron": wrong, "overlap": overlap, **dict(zip(shown.names, shown.exact))}


if __name__ == "__main__":
    main()
