"""§6.1, §6.4, §6.6: the diagrams of the chapter, drawn from the jaxprs of the networks they
show.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ... import models
from ...layers import Attention, LearnedPositions, Mask, dot_product_attention
from ...plot import Arrow, Box, Diagram
from ..engine.check import equal, refuted
from ..engine.claim import Verdict, claim
from .flow import Arrows, flow, group_parts


def arrow_checks(result: Arrows, expected: Arrows, control: Arrows) -> list[Any]:
    """Checks that the arrows are the expected ones, and that those of another network are not."""
    unlike = lambda arrows: len(set(arrows) ^ set(expected))
    boxes = lambda arrows: {name for arrow in arrows for name in arrow}
    return [
        equal("boxes in only one of the two", len(boxes(result) ^ boxes(expected)), 0),
        equal("arrows in only one of the two", unlike(result), 0),
        equal("arrows", len(result), len(expected)),
        refuted(equal("arrows in only one of the two, for the control", unlike(control), 0)),
    ]


def diagram(
    arrows: Arrows, places: dict[str, tuple[int | float, int | float]], words: dict[str, str]
) -> Diagram:
    """The diagram of the arrows, with boxes at these places, as wide as their labels."""
    frameless = ("output", "X", "image", "source tokens", "target tokens")
    labels = {name: name for name in places} | words
    boxes = {
        name: Box(*at, 0.35 + 0.115 * len(labels[name]), 0.56, labels[name], name not in frameless)
        for name, at in places.items()
    }
    return Diagram(boxes, [Arrow(*way) for way in arrows])


def drawing_check(picture: Diagram, arrows: Arrows) -> Any:
    """Checks that the diagram has exactly these arrows."""
    return equal(
        "arrows in only one of diagram and program",
        len({(a.start, a.end) for a in picture.arrows} ^ set(arrows)),
        0,
    )


@claim(
    "6.4-fig6.1",
    title="Diagram of multi-head attention",
    kind="figure",
    of=("layers.Attention", "layers.dot_product_attention", "plot.Diagram"),
    cites="Vaswani et al. 2017",
)
def heads(key):
    r"""$Q$, $K$ and $V$ are linear maps of $X$; each head attends with its part of the three; $W_O$
    maps the concatenated results. The arrows of the diagram are those of the program.
    """
    layer = Attention.init(8, 2, kernel=jax.jit(_attend), key=key)
    tokens = {"X": jnp.ones((5, 8))}
    result = flow(lambda layer, X: layer(X), layer, tokens, atomic=("_attend",))
    result = group_parts(result, {"_attend": "attention"})
    cross = flow(
        lambda layer, X, B: layer(X, B),
        layer,
        tokens | {"B": jnp.ones((4, 8))},
        atomic=("_attend",),
    )
    expected = [
        ("X", "Q"),
        ("X", "K"),
        ("X", "V"),
        ("Q", "attention"),
        ("K", "attention"),
        ("V", "attention"),
        ("attention", "O"),
        ("O", "output"),
    ]
    picture = diagram(
        result,
        {
            "X": (0, 0),
            "Q": (-2, 1),
            "K": (0, 1),
            "V": (2, 1),
            "attention": (0, 2),
            "O": (0, 3),
            "output": (0, 4),
        },
        {
            "Q": "Q: linear",
            "K": "K: linear",
            "V": "V: linear",
            "attention": "attention of each head",
            "O": "concatenate, O: linear",
            "output": "T × d",
            "X": "X, T × d",
        },
    )
    return Verdict(
        *arrow_checks(result, expected, group_parts(cross, {"_attend": "attention"})),
        drawing_check(picture, result),
        figure=picture,
    )


def _attend(q, k, v, mask: Mask):
    return dot_product_attention(q, k, v, mask)


ENCODER, DECODER = "encoder.blocks.layers", "trunk.blocks.layers"
TRANSLATOR = {
    "source": "embed source",
    "embed": "embed target",
    "positions": "positions",
    "readout": "linear, softmax",
    f"{ENCODER}.attention": "self-attention",
    f"{ENCODER}.feed": "encoder feed",
    "+1": "norm 1",
    f"{ENCODER}.norm": "norm 1",
    "+2": "norm 2",
    f"{ENCODER}.feed_norm": "norm 2",
    f"{DECODER}.attention": "causal attention",
    f"{DECODER}.cross": "cross-attention",
    f"{DECODER}.feed": "decoder feed",
    "+3": "norm 3",
    f"{DECODER}.norm": "norm 3",
    "+4": "norm 4",
    f"{DECODER}.cross_norm": "norm 4",
    "+5": "norm 5",
    f"{DECODER}.feed_norm": "norm 5",
}
WORDS = {
    "self-attention": "attention",
    "encoder feed": "feed-forward",
    "causal attention": "masked attention",
    "decoder feed": "feed-forward",
    "source tokens": "source",
    "target tokens": "target so far",
    "output": "next token",
    **{f"norm {i}": "add & norm" for i in range(1, 6)},
}


def translator(key: Any, norms: Any) -> Arrows:
    """The arrows of a translator with one block on each side, grouped by parts."""
    places = LearnedPositions.init(9, 8, key=key)
    net = models.Translator.init(
        7, 5, 8, depth=1, heads=2, hidden=8, norms=norms, tied=False, positions=places, key=key
    )
    pair = {"source tokens": jnp.array([1, 2, 3, -1]), "target tokens": jnp.array([0, 1, 2])}
    return group_parts(
        flow(lambda net, source, target: net((source, target)), net, pair), TRANSLATOR
    )


@claim(
    "6.4-fig6.3",
    title="Diagram of encoder and decoder",
    kind="figure",
    of=("models.Translator", "plot.Diagram"),
    cites="Vaswani et al. 2017",
)
def encoder_decoder(key):
    r"""Encoder: positions added to token embeddings, attention, a feed-forward network; decoder:
    masked attention, cross-attention to the encoder's output, a feed-forward network, and logits;
    every part has a residual connection and a norm. The arrows of the diagram are those of the
    program.
    """
    result = translator(key, "after")
    control = translator(key, "before")
    encoder = [
        ("source tokens", "embed source"),
        ("embed source", "positions"),
        ("positions", "self-attention"),
        ("positions", "norm 1"),
        ("self-attention", "norm 1"),
        ("norm 1", "encoder feed"),
        ("norm 1", "norm 2"),
        ("encoder feed", "norm 2"),
        ("norm 2", "cross-attention"),
    ]
    decoder = [
        ("target tokens", "embed target"),
        ("embed target", "positions"),
        ("positions", "causal attention"),
        ("positions", "norm 3"),
        ("causal attention", "norm 3"),
        ("norm 3", "cross-attention"),
        ("norm 3", "norm 4"),
        ("cross-attention", "norm 4"),
        ("norm 4", "decoder feed"),
        ("norm 4", "norm 5"),
        ("decoder feed", "norm 5"),
        ("norm 5", "linear, softmax"),
        ("linear, softmax", "output"),
    ]
    places = {
        "source tokens": (-1.4, 0),
        "embed source": (-1.4, 1),
        "self-attention": (-3.2, 3),
        "norm 1": (-1.4, 3.8),
        "encoder feed": (-3.2, 4.6),
        "norm 2": (-1.4, 5.4),
        "positions": (0.8, 2),
        "target tokens": (3.0, 0),
        "embed target": (3.0, 1),
        "causal attention": (4.8, 3),
        "norm 3": (3.0, 3.8),
        "cross-attention": (1.2, 4.6),
        "norm 4": (3.0, 5.4),
        "decoder feed": (4.8, 6.2),
        "norm 5": (3.0, 7.0),
        "linear, softmax": (3.0, 8),
        "output": (3.0, 9),
    }
    picture = diagram(result, places, WORDS)
    return Verdict(
        *arrow_checks(result, encoder + decoder, control),
        drawing_check(picture, result),
        figure=picture,
    )


@claim(
    "6.6-fig6.4",
    title="Diagram of the vision transformer",
    kind="figure",
    of=("models.ViT", "plot.Diagram"),
    cites="Dosovitskiy et al. 2021",
)
def vision(key):
    r"""Patches become vectors by one linear map, the class token is prepended, positions are added,
    an encoder follows, and the class is predicted from the first position. The arrows of the
    diagram are those of the program.
    """

    def arrows(placed):
        net = models.ViT.init(
            3,
            image_size=(8, 8),
            channels=1,
            patch_size=4,
            d=8,
            depth=1,
            heads=2,
            positions=placed,
            key=key,
        )
        result = flow(lambda net, x: net(x), net, {"image": jnp.ones((1, 8, 8))})
        block = "trunk.blocks.layers"
        return group_parts(
            result,
            {
                "stem": "patches",
                "class_token": "class token",
                "positions": "positions",
                "head": "linear",
                "trunk.last": "norm 3",
                f"{block}.norm": "norm 1",
                f"{block}.attention": "attention",
                f"{block}.feed_norm": "norm 2",
                f"{block}.feed": "feed-forward",
                "+1": "add 1",
                "+2": "add 2",
            },
        )

    result = arrows(True)
    expected = [
        ("image", "patches"),
        ("patches", "class token"),
        ("class token", "positions"),
        ("positions", "norm 1"),
        ("norm 1", "attention"),
        ("attention", "add 1"),
        ("positions", "add 1"),
        ("add 1", "norm 2"),
        ("norm 2", "feed-forward"),
        ("feed-forward", "add 2"),
        ("add 1", "add 2"),
        ("add 2", "norm 3"),
        ("norm 3", "linear"),
        ("linear", "output"),
    ]
    spine = (
        "image",
        "patches",
        "class token",
        "positions",
        "add 1",
        "add 2",
        "norm 3",
        "linear",
        "output",
    )
    places = {name: (0.0, float(i)) for i, name in enumerate(spine)}
    places |= {
        "norm 1": (1.9, 3.2),
        "attention": (3.9, 3.6),
        "norm 2": (1.9, 4.2),
        "feed-forward": (3.9, 4.6),
    }
    words = {
        "patches": "linear, of each patch",
        "class token": "prepend class token",
        "add 1": "+",
        "add 2": "+",
        "norm 1": "norm",
        "norm 2": "norm",
        "norm 3": "norm",
        "output": "class",
        "positions": "+ positions",
    }
    picture = diagram(result, places, words)
    return Verdict(
        *arrow_checks(result, expected, arrows(False)),
        drawing_check(picture, result),
        figure=picture,
    )
