"""Chapter 6: attention by hand, an encoder that turns sentences around, a model of text, and an
image as a sentence.

Expect a translator to learn a code and a reversal, its attention to run backwards over the source;
a small GPT to say a rhyme by heart; and a vision transformer that cannot tell how patches lie until
it is told their places. `python chapter_6.py FOLDER` keeps the pictures there, otherwise they go to
a temporary folder.
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


def learn(model, draw_batch, *, steps, rate, key):
    """Adam with clipped gradients, each step on a batch drawn anew, as one program."""
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    step = train.descend(
        lambda model, _, key: train.token_cross_entropy(model, draw_batch(key)), clipped
    )
    return jax.jit(lambda model: run(step, model, jnp.zeros(steps), key=key)[0].model)(model)


def sentences(key):
    """Words in code and turned around: $y_i = 9 - x_{n-i}$."""
    x = jr.randint(key, (32, LENGTH), 0, WORDS, dtype=jnp.int32)
    y = WORDS - 1 - x[:, ::-1]
    edge = lambda token: jnp.full((32, 1), token, jnp.int32)
    return (x, jnp.concatenate([edge(BEGIN), y], axis=1)), jnp.concatenate([y, edge(END)], axis=1)


def main(folder: str | None = None, steps: int = 400) -> dict[str, float]:
    key_x, key_pair, key_speak, key_image, key_fit = jr.split(jr.key(0), 5)
    pictures = Path(folder or tempfile.mkdtemp())
    found = {}

    # §6.1, §6.3: a mean of values, which knows no order
    layer = layers.Attention.init(8, 2, key=key_x)
    x = jr.normal(key_x, (6, 8))
    turned = np.array([3, 1, 5, 0, 2, 4])
    found["order"] = float(jnp.abs(layer(x[turned]) - layer(x)[turned]).max())
    print(
        f"attention of turned tokens is the attention, turned: they differ by {found['order']:.0e}"
    )

    # §6.4: a translation
    code = Translator.init(None, WORDS + 2, 32, depth=1, heads=2, key=key_pair)
    code = learn(code, sentences, steps=steps, rate=5e-3, key=key_fit)
    (source, before), target = sentences(jr.key(1))

    def say(source):
        cell, state = code.decoder(source, length=LENGTH + 1)
        return greedy(cell, state=state, first=BEGIN, end=END, length=LENGTH + 1).tokens

    found["translated"] = float((jax.jit(jax.vmap(say))(source) == target).all(axis=1).mean())
    print(f"translated without a mistake: {100 * found['translated']:.0f} % of new sentences")
    names = tuple(map(str, range(WORDS))), (*map(str, range(WORDS)), "begin", "end")
    draw(explain.alignment(code, source[0], before[0], names=names)).savefig(
        pictures / "alignment.png"
    )

    # §6.4: a model of text
    tokens = jnp.array([LETTERS.index(letter) for letter in RHYME], jnp.int32)
    gpt = GPT.init(len(LETTERS), 32, depth=2, heads=2, max_length=len(tokens), key=key_speak)
    gpt = learn(
        gpt, lambda key: (tokens[None, :-1], tokens[None, 1:]), steps=steps, rate=5e-3, key=key_fit
    )
    cell, state = gpt.decoder(tokens[:3], length=len(tokens))
    said = greedy(cell, state=state, first=int(tokens[3]), length=len(tokens) - 4).tokens
    found["by heart"] = float((said == tokens[4:]).mean())
    print("GPT goes on after 'row ':", "".join(LETTERS[token] for token in said[:40].tolist()))
    draw(explain.attention_maps(gpt, tokens[:24], names=LETTERS)).savefig(
        pictures / "attention.png"
    )

    # §6.6: an image as a sentence of patches
    image = jr.normal(key_image, (1, 8, 8))
    shuffled = image.reshape(1, 2, 4, 2, 4)[:, ::-1].reshape(1, 8, 8)  # the upper patches below
    for name, placed in {"with places": True, "without places": False}.items():
        net = ViT.init(
            3,
            image_size=(8, 8),
            channels=1,
            patch_size=4,
            d=16,
            depth=2,
            heads=2,
            positions=placed,
            key=key_image,
        )
        found[name] = float(jnp.abs(net(image) - net(shuffled)).max())
        print(f"ViT {name}: patches in another order change the logits by {found[name]:.1e}")
    print(f"pictures in {pictures}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
