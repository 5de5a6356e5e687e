"""Chapter 6: attention, an encoder-decoder transformer, a GPT, and a vision transformer.

Expected results: the translator learns a substitution and a reversal, and its attention runs
backwards over the source; a small GPT memorises a rhyme; a vision transformer is invariant to the
order of its patches unless it has positional encodings. `python chapter_6.py FOLDER` saves the
figures there, by default in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import explain, layers, train
from thetax.core import run
from thetax.models import GPT, Translator, ViT, greedy
from thetax.plot import draw

RHYME = (
    "row row row your boat gently down the stream merrily merrily merrily merrily life is but a "
    "dream "
)
LETTERS = sorted(set(RHYME))
BEGIN, END, WORDS, LENGTH = 10, 11, 10, 5


def learn(model, sample_batch, *, steps, learning_rate, key):
    """Adam with gradient clipping on a new batch in each step, compiled as one program."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))
    step = train.descend(
        lambda model, _, key: train.token_cross_entropy(model, sample_batch(key)), optimiser
    )
    return jax.jit(lambda model: run(step, model, jnp.zeros(steps), key=key)[0].model)(model)


def sentences(key):
    """Random sentences and their targets: $y_i = 9 - x_{n-i}$."""
    x = jr.randint(key, (32, LENGTH), 0, WORDS, dtype=jnp.int32)
    y = WORDS - 1 - x[:, ::-1]
    column = lambda token: jnp.full((32, 1), token, jnp.int32)
    inputs = jnp.concatenate([column(BEGIN), y], axis=1)
    return (x, inputs), jnp.concatenate([y, column(END)], axis=1)


def main(folder: str | None = None, *, steps: int = 400) -> dict[str, float]:
    key_x, key_pair, key_gpt, key_image, key_fit = jr.split(jr.key(0), 5)
    output = Path(folder or tempfile.mkdtemp())
    results = {}

    # §6.1, §6.3: attention is equivariant to permutations
    layer = layers.Attention.init(8, 2, key=key_x)
    x = jr.normal(key_x, (6, 8))
    permutation = np.array([3, 1, 5, 0, 2, 4])
    results["order"] = float(jnp.abs(layer(x[permutation]) - layer(x)[permutation]).max())
    print(f"equivariance error of attention to a permutation: {results['order']:.0e}")

    # §6.4: translation
    translator = Translator.init(None, WORDS + 2, 32, depth=1, heads=2, key=key_pair)
    translator = learn(translator, sentences, steps=steps, learning_rate=5e-3, key=key_fit)
    (source, inputs), target = sentences(jr.key(1))

    def translate(source):
        cell, state = translator.decoder(source, max_length=LENGTH + 1)
        return greedy(
            cell, state=state, start_token=BEGIN, end_token=END, max_new_tokens=LENGTH + 1
        ).tokens

    results["translated"] = float(
        (jax.jit(jax.vmap(translate))(source) == target).all(axis=1).mean()
    )
    print(f"exact match on new sentences: {100 * results['translated']:.0f} %")
    names = tuple(map(str, range(WORDS))), (*map(str, range(WORDS)), "begin", "end")
    draw(explain.attention_alignment(translator, source[0], inputs[0], vocabs=names)).savefig(
        output / "alignment.png"
    )

    # §6.4: a language model
    tokens = jnp.array([LETTERS.index(letter) for letter in RHYME], jnp.int32)
    gpt = GPT.init(len(LETTERS), 32, depth=2, heads=2, max_length=len(tokens), key=key_gpt)
    gpt = learn(
        gpt,
        lambda key: (tokens[None, :-1], tokens[None, 1:]),
        steps=steps,
        learning_rate=5e-3,
        key=key_fit,
    )
    cell, state = gpt.decoder(tokens[:3], max_length=len(tokens))
    text = greedy(
        cell, state=state, start_token=int(tokens[3]), max_new_tokens=len(tokens) - 4
    ).tokens
    results["memorised"] = float((text == tokens[4:]).mean())
    print("GPT after 'row ':", "".join(LETTERS[token] for token in text[:40].tolist()))
    draw(explain.attention_maps(gpt, tokens[:24], vocab=LETTERS)).savefig(output / "attention.png")

    # §6.6: an image as a sequence of patches
    image = jr.normal(key_image, (1, 8, 8))
    shuffled = image.reshape(1, 2, 4, 2, 4)[:, ::-1].reshape(
        1, 8, 8
    )  # upper and lower patches exchanged
    for name, positions in {"with positions": True, "without positions": False}.items():
        net = ViT.init(
            3,
            image_size=(8, 8),
            channels=1,
            patch_size=4,
            d=16,
            depth=2,
            heads=2,
            positions=positions,
            key=key_image,
        )
        results[name] = float(jnp.abs(net(image) - net(shuffled)).max())
        print(f"ViT {name}: a permutation of the patches changes the logits by {results[name]:.1e}")
    print(f"figures in {output}")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])
