"""Chapter 1: a perceptron that separates two digits, and three associative memories of ten digits.

Expected results: the perceptron makes no mistake after training, since zeros and ones are linearly
separable. Hebb's rule recalls none of the digits, since they are correlated and cross-talk is
larger than the signal. The pseudo-inverse rule removes the correlations and recalls most of them;
the modern Hopfield network recalls all. Hebb's rule works well for random patterns.
`python chapter_1.py FOLDER` saves the figure there, by default in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax import data
from thetax.core import predict
from thetax.explain import flip_signs, memory_recall
from thetax.layers import ModernHopfield
from thetax.models import Hebbian, asynchronous_recall, fit_perceptron, hebb, pseudo_inverse
from thetax.plot import draw


def main(folder: str | None = None, *, noise: float = 0.15) -> dict[str, float]:
    key_noise, key_random = jr.split(jr.key(0))
    xs, ys = data.load("digits").train
    xs = xs.reshape(len(xs), -1)

    # §1.2: zeros and ones are linearly separable, so the perceptron converges
    two = ys < 2
    labels = np.where(ys[two] == 1, 1, -1)
    result = fit_perceptron(xs[two], labels)
    errors = int((jnp.sign(predict(result.model, jnp.asarray(xs[two]))) != labels).sum())
    print(
        f"zeros and ones: {result.mistakes} mistakes of the perceptron in training, then {errors} "
        f"of {sum(two)}"
    )

    # §1.4: one binary image of each digit, recalled from noise
    first = np.array([np.flatnonzero(ys == k)[1] for k in range(10)])
    patterns = jnp.where(jnp.asarray(xs[first]) > 0.5, 1.0, -1.0)
    memories = {
        "Hebb": hebb(patterns),
        "pseudo-inverse": pseudo_inverse(patterns),
        "modern": ModernHopfield(patterns, beta=1.0),
    }
    recall = memory_recall(memories, patterns, flip_signs(patterns, fraction=noise, key=key_noise))
    output = Path(folder or tempfile.mkdtemp())
    draw(recall).savefig(output / "recall.png", dpi=150)
    overlaps = np.asarray(patterns @ patterns.T) / patterns.shape[1]
    overlap = overlaps[~np.eye(10, dtype=bool)].mean()
    print(f"\nten digits with {100 * noise:.0f} % of the pixels flipped, exact recall:")
    explanations = {
        "Hebb": f"the digits are correlated (mean overlap {overlap:.2f}, 0 if random), which "
        "causes cross-talk",
        "pseudo-inverse": "correlations are removed; cues with much noise still fail",
        "modern": "softmax selects the nearest digit",
    }
    for name, exact in zip(recall.names, recall.exact):
        print(f"  {name:<16}{100 * exact:>4.0f} %   {explanations[name]}")
    print(f"  figure in {output}: recall.png")

    # the same dynamics with 10,000 units; the 100 million weights are never formed
    random = jr.rademacher(key_random, (1000, 10_000), float)
    final = asynchronous_recall(Hebbian(random), flip_signs(random[0], fraction=0.1, key=key_noise))
    overlap = float(jnp.mean(final.x * random[0]))
    print("\nHebb with 1,000 random patterns of 10,000 units, 10 % of them flipped:")
    print(
        f"  overlap {overlap:.4f} with the pattern after {final.flips} flips: random patterns are "
        "almost uncorrelated"
    )
    return {"perceptron": errors, "overlap": overlap, **dict(zip(recall.names, recall.exact))}


if __name__ == "__main__":
    main(*sys.argv[1:2])
