"""Chapter 1: a perceptron tells two digits apart, and three memories are shown ten digits in noise.

What to expect. The perceptron makes no mistake in the end, as zeros and ones are separable. Hebb's
memory recalls none of the digits: they are alike (two of them agree on most pixels), and what it
adds up for one is drowned by the cross-talk of the other nine. The projection takes the likeness
out and recalls most; the modern memory, which compares the cue with one digit at a time, recalls
all. Hebb's rule is at its best with random patterns: the last lines.
"""

import sys
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


def main(folder: str | None = None, *, noise: float = 0.15) -> dict[str, float]:
    key_noise, key_sites = jr.split(jr.key(0))
    xs, ys = data.load("digits").train
    xs = xs.reshape(len(xs), -1)

    # §1.2: zeros and ones can be separated by a hyperplane, so the perceptron finds one
    two = ys < 2
    labels = np.where(ys[two] == 1, 1, -1)
    found = fit_perceptron(xs[two], labels)
    wrong = int((jnp.sign(predict(found.model, jnp.asarray(xs[two]))) != labels).sum())
    print(
        f"zeros and ones: the perceptron errs {found.mistakes} times as it learns, and then on "
        f"{wrong} of {sum(two)}"
    )

    # §1.4: one digit of each kind in black and white, recalled from noise
    first = np.array([np.flatnonzero(ys == k)[1] for k in range(10)])
    patterns = jnp.where(jnp.asarray(xs[first]) > 0.5, 1.0, -1.0)
    memories = {
        "Hebb": hebb(patterns),
        "projection": pseudo_inverse(patterns),
        "modern": ModernHopfield(patterns, beta=1.0),
    }
    shown = recall(memories, patterns, corrupt(patterns, share=noise, key=key_noise))
    place = Path(folder or tempfile.mkdtemp())
    draw(shown).savefig(place / "recall.png", dpi=150)
    overlaps = np.asarray(patterns @ patterns.T) / patterns.shape[1]
    alike = overlaps[~np.eye(10, dtype=bool)].mean()
    print(f"\nten digits with {100 * noise:.0f} % of the pixels flipped, recalled without a fault:")
    why = {
        "Hebb": f"the digits are alike (mean overlap {alike:.2f}, random ones 0): cross-talk "
        "drowns each of them",
        "projection": "the likeness is projected out; a cue with much noise still ends elsewhere",
        "modern": "softmax picks the nearest digit and leaves the others out",
    }
    for name, exact in zip(shown.names, shown.exact):
        print(f"  {name:<11}{100 * exact:>4.0f} %   {why[name]}")
    print(f"  drawn in {place}: recall.png")

    # the same dynamics with 10,000 sites: the couplings would be 100 million numbers, and are never
    # formed
    many = jr.rademacher(key_sites, (1000, 10_000), float)
    rest = asynchronous(Hebbian(many), corrupt(many[0], share=0.1, key=key_noise))
    overlap = float(jnp.mean(rest.x * many[0]))
    print("\nHebb again, with 1,000 random patterns of 10,000 sites, 10 % of them flipped:")
    print(
        f"  overlap {overlap:.4f} with the pattern after {rest.flips} flips: random patterns are "
        "hardly alike"
    )
    return {"perceptron": wrong, "overlap": overlap, **dict(zip(shown.names, shown.exact))}


if __name__ == "__main__":
    main(*sys.argv[1:2])
