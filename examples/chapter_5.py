"""Chapter 5: what recurrent networks remember, and two that speak.

Expect an Elman cell to forget as fast as its bound says, an LSTM and a linear recurrence to
remember; an n-gram and a network to learn a rhyme; and attention to point at what it copies.
`python chapter_5.py FOLDER` keeps the pictures there, otherwise they go to a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from thetax import explain, layers, train
from thetax.core import run
from thetax.models import EncoderDecoder, NextToken, NGram, greedy
from thetax.plot import draw

RHYME = (
    "row row row your boat gently down the stream merrily merrily merrily merrily life is but a "
    "dream "
)
LETTERS = sorted(set(RHYME))


def learn(model, batch, *, steps, rate=1e-2, key):
    """Adam with clipped gradients on the whole batch, as one program."""
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    step = train.descend(lambda model, _, key: train.token_cross_entropy(model, batch), clipped)
    return jax.jit(lambda model: run(step, model, jnp.zeros(steps), key=key)[0].model)(model)


def main(folder: str | None = None, steps: int = 200) -> dict[str, float]:
    key_x, key_cell, key_speak, key_pair, key_fit = jr.split(jr.key(0), 5)
    pictures = Path(folder or tempfile.mkdtemp())
    found = {}

    # §5.0, §5.1, §5.2: how much of the first state is left in the last
    xs = jr.normal(key_x, (4, 100, 3))
    small = layers.Elman.init(3, 8, key=key_cell)
    cells = {
        "Elman": layers.Elman(0.9 * small.U, small.V, small.b),
        "LSTM": layers.LSTM.init(3, 8, forget=5.0, key=key_cell),
        "LRU": layers.LRU.init(3, 8, 3, radius=(0.99, 0.999), key=key_cell),
    }
    for name, cell in cells.items():
        seen = explain.through_time(cell, xs)
        found[name] = float(seen.norms[:, -1].mean())
        print(
            f"{name:>5}: a change of the first state is {found[name]:.1e} times as large after "
            "100 steps"
        )
        if seen.bound is not None:
            found["bound"] = float(seen.bound[-1])
    draw(explain.eigenvalues(cells["LRU"])).savefig(pictures / "eigenvalues.png")

    # §5.3, L10: the next letter, by counting and by learning
    tokens = jnp.array([LETTERS.index(letter) for letter in 3 * RHYME], jnp.int32)
    batch = tokens[None, :-1], tokens[None, 1:]
    counted = NGram.fit(tokens.tolist(), vocab_size=len(LETTERS), order=3)
    spoken = layers.Recurrent(NextToken.init(len(LETTERS), 8, 48, key=key_speak))
    learnt = learn(spoken, batch, steps=steps, key=key_fit)
    for name, model in {"3-gram": layers.Recurrent(counted), "network": learnt}.items():
        found[name] = float(train.token_cross_entropy(model, batch)) / float(jnp.log(2))
        said = greedy(model.cell, first=LETTERS.index("r"), length=40).tokens
        print(
            f"{name:>7}, {found[name]:.2f} bits a letter: "
            f"r{''.join(LETTERS[token] for token in said)}"
        )

    # §5.3: attention finds what it is to copy
    source = jr.randint(key_pair, (256, 6), 1, 8)
    target = source[:, ::-1]
    pairs = (
        (source, jnp.concatenate([jnp.zeros((256, 1), jnp.int32), target[:, :-1]], axis=1)),
        target,
    )
    model = EncoderDecoder.init(
        8, 8, 16, 32, attention_width=16, cell=layers.GRU.init, key=key_pair
    )
    turned = learn(model, pairs, steps=steps, key=key_fit)
    found["wrong"] = float(train.sequence_error_rate(turned, pairs))
    draw(explain.alignment(turned, source[0], pairs[0][1][0])).savefig(pictures / "alignment.png")
    print(f"six tokens turned round: {100 * found['wrong']:.1f} % of the sequences wrong")
    print(f"drawn in {pictures}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
