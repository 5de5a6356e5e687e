"""Chapter 5: memory of recurrent networks, language models, and attention.

Expected results: the gradient through an Elman cell decays at least as fast as its bound, and much
less through an LSTM and a linear recurrence; an n-gram and a network learn a rhyme; attention
aligns an output with the input that it copies. `python chapter_5.py FOLDER` saves the figures
there, by default in a temporary folder.
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
from thetax.models import EncoderDecoder, LanguageModelCell, NGram, greedy
from thetax.plot import draw

RHYME = (
    "row row row your boat gently down the stream merrily merrily merrily merrily life is but a "
    "dream "
)
LETTERS = sorted(set(RHYME))


def learn(model, batch, *, steps, learning_rate=1e-2, key):
    """Full-batch Adam with gradient clipping, compiled as one program."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))
    step = train.descend(lambda model, _, key: train.token_cross_entropy(model, batch), optimiser)
    return jax.jit(lambda model: run(step, model, jnp.zeros(steps), key=key)[0].model)(model)


def main(folder: str | None = None, *, steps: int = 200) -> dict[str, float]:
    key_x, key_cell, key_language, key_pair, key_fit = jr.split(jr.key(0), 5)
    output = Path(folder or tempfile.mkdtemp())
    results = {}

    # §5.0, §5.1, §5.2: the gradient of the last state with respect to the first
    xs = jr.normal(key_x, (4, 100, 3))
    elman = layers.Elman.init(3, 8, key=key_cell)
    cells = {
        "Elman": layers.Elman(0.9 * elman.U, elman.V, elman.b),
        "LSTM": layers.LSTM.init(3, 8, forget_bias=5.0, key=key_cell),
        "LRU": layers.LRU.init(3, 8, 3, radius=(0.99, 0.999), key=key_cell),
    }
    for name, cell in cells.items():
        gradients = explain.gradients_through_time(cell, xs)
        results[name] = float(gradients.norms[:, -1].mean())
        print(f"{name:>5}: norm of the gradient through 100 steps {results[name]:.1e}")
        if gradients.bound is not None:
            results["bound"] = float(gradients.bound[-1])
    draw(explain.recurrence_eigenvalues(cells["LRU"])).savefig(output / "eigenvalues.png")

    # §5.3, L10: prediction of the next letter by an n-gram and by a network
    tokens = jnp.array([LETTERS.index(letter) for letter in 3 * RHYME], jnp.int32)
    batch = tokens[None, :-1], tokens[None, 1:]
    ngram = NGram.fit(tokens.tolist(), vocab_size=len(LETTERS), order=3)
    network = layers.Recurrent(LanguageModelCell.init(len(LETTERS), 8, 48, key=key_language))
    network = learn(network, batch, steps=steps, key=key_fit)
    for name, model in {"3-gram": layers.Recurrent(ngram), "network": network}.items():
        results[name] = float(train.token_cross_entropy(model, batch)) / float(jnp.log(2))
        text = greedy(model.cell, start_token=LETTERS.index("r"), max_new_tokens=40).tokens
        print(
            f"{name:>7}, {results[name]:.2f} bits per letter: "
            f"r{''.join(LETTERS[token] for token in text)}"
        )

    # §5.3: attention in a network that reverses sequences
    source = jr.randint(key_pair, (256, 6), 1, 8)
    target = source[:, ::-1]
    pairs = (
        (source, jnp.concatenate([jnp.zeros((256, 1), jnp.int32), target[:, :-1]], axis=1)),
        target,
    )
    model = EncoderDecoder.init(
        8, 8, 16, 32, attention_width=16, cell=layers.GRU.init, key=key_pair
    )
    model = learn(model, pairs, steps=steps, key=key_fit)
    results["sequence error"] = float(train.sequence_error_rate(model, pairs))
    draw(explain.attention_alignment(model, source[0], pairs[0][1][0])).savefig(
        output / "alignment.png"
    )
    print(f"reversal of six tokens: {100 * results['sequence error']:.1f} % of the sequences wrong")
    print(f"figures in {output}")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])
