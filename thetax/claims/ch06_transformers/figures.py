"""§6.1, §6.4, §6.6: the pictures of the chapter, drawn from the programs of the networks they
show.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ... import models
from ...layers import Attention, Learned, Mask, attend
from ...plot import Arrow, Box, Diagram
from ..engine.check import equal, refuted
from ..engine.claim import Verdict, claim
from .flow import Arrows, flow, renamed

VASWANI = "Vaswani et al. 2017"


def compared(found: Arrows, expected: Arrows, control: Arrows) -> list[Any]:
    """Arrow for arrow the same; and another network's are not."""
    unlike = lambda arrows: len(set(arrows) ^ set(expected))
    boxes = lambda arrows: {name for arrow in arrows for name in arrow}
    return [
        equal("boxes of the one that the other has not", len(boxes(found) ^ boxes(expected)), 0),
        equal("arrows of the one that the other has not", unlike(found), 0),
        equal("arrows", len(found), len(expected)),
        refuted(
            equal("arrows of the one that the other has not, for the control", unlike(control), 0)
        ),
    ]


def diagram(
    arrows: Arrows, places: dict[str, tuple[int | float, int | float]], words: dict[str, str]
) -> Diagram:
    """The boxes at these places, as wide as their words, and these arrows."""
    bare = ("output", "X", "image", "source tokens", "target tokens")
    said = {name: name for name in places} | words
    boxes = {
        name: Box(*at, 0.35 + 0.115 * len(said[name]), 0.56, said[name], name not in bare)
        for name, at in places.items()
    }
    return Diagram(boxes, [Arrow(*way) for way in arrows])


def drawn(picture: Diagram, arrows: Arrows) -> Any:
    """The picture has these arrows and no others."""
    return equal(
        "arrows drawn that are not in the program, or not drawn",
        len({(a.start, a.end) for a in picture.arrows} ^ set(arrows)),
        0,
    )


@claim(
    "6.4-fig6.1",
    title="Attention with several heads, as a picture",
    kind="figure",
    of=("layers.Attention", "layers.attend", "plot.Diagram"),
    cites=VASWANI,
)
def heads(key):
    r"""$Q$, $K$ and $V$ are linear maps of $X$; the heads of all three are attended to side by
    side; $W_O$ maps what they find, put together. The arrows of the picture are those of the
    program.
    """
    layer = Attention.init(8, 2, kernel=jax.jit(_attend), key=key)
    tokens = {"X": jnp.ones((5, 8))}
    found = flow(lambda layer, X: layer(X), layer, tokens, whole=("_attend",))
    found = renamed(found, {"_attend": "attention"})
    cross = flow(
        lambda layer, X, B: layer(X, B), layer, tokens | {"B": jnp.ones((4, 8))}, whole=("_attend",)
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
        found,
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
            "O": "side by side, O: linear",
            "output": "T × d",
            "X": "X, T × d",
        },
    )
    return Verdict(
        *compared(found, expected, renamed(cross, {"_attend": "attention"})),
        drawn(picture, found),
        figure=picture,
    )


def _attend(q, k, v, mask: Mask):
    return attend(q, k, v, mask)


ENCODER, DECODER = "encoder.blocks.layers", "trunk.blocks.layers"
TRANSLATOR = {
    "source": "embed source",
    "embed": "embed target",
    "positions": "places",
    "readout": "linear, softmax",
    f"{ENCODER}.attention": "look",
    f"{ENCODER}.feed": "think",
    "+1": "norm 1",
    f"{ENCODER}.norm": "norm 1",
    "+2": "norm 2",
    f"{ENCODER}.feed_norm": "norm 2",
    f"{DECODER}.attention": "look back",
    f"{DECODER}.cross": "consult",
    f"{DECODER}.feed": "think on",
    "+3": "norm 3",
    f"{DECODER}.norm": "norm 3",
    "+4": "norm 4",
    f"{DECODER}.cross_norm": "norm 4",
    "+5": "norm 5",
    f"{DECODER}.feed_norm": "norm 5",
}
WORDS = {
    "look": "attention",
    "think": "feed-forward",
    "look back": "masked attention",
    "consult": "cross-attention",
    "think on": "feed-forward",
    "source tokens": "source",
    "target tokens": "target so far",
    "output": "next token",
    **{f"norm {i}": "add & norm" for i in range(1, 6)},
}


def translator(key: Any, norms: Any) -> Arrows:
    """The arrows of a translator of one block on each side, its parts taken together."""
    places = Learned.init(9, 8, key=key)
    net = models.Translator.init(
        7, 5, 8, depth=1, heads=2, hidden=8, norms=norms, tied=False, positions=places, key=key
    )
    pair = {"source tokens": jnp.array([1, 2, 3, -1]), "target tokens": jnp.array([0, 1, 2])}
    return renamed(flow(lambda net, source, target: net((source, target)), net, pair), TRANSLATOR)


@claim(
    "6.4-fig6.3",
    title="Encoder and decoder, as a picture",
    kind="figure",
    of=("models.Translator", "plot.Diagram"),
    cites=VASWANI,
)
def encoder_decoder(key):
    r"""Encoder: places added to vectors of the tokens, attention, a network for each token;
    decoder: masked attention, attention to what the encoder found, a network for each token, and
    logits; every part is added to what went in and normalised. The arrows of the picture are those
    of the program.
    """
    found = translator(key, "after")
    control = translator(key, "before")
    encoder = [
        ("source tokens", "embed source"),
        ("embed source", "places"),
        ("places", "look"),
        ("places", "norm 1"),
        ("look", "norm 1"),
        ("norm 1", "think"),
        ("norm 1", "norm 2"),
        ("think", "norm 2"),
        ("norm 2", "consult"),
    ]
    decoder = [
        ("target tokens", "embed target"),
        ("embed target", "places"),
        ("places", "look back"),
        ("places", "norm 3"),
        ("look back", "norm 3"),
        ("norm 3", "consult"),
        ("norm 3", "norm 4"),
        ("consult", "norm 4"),
        ("norm 4", "think on"),
        ("norm 4", "norm 5"),
        ("think on", "norm 5"),
        ("norm 5", "linear, softmax"),
        ("linear, softmax", "output"),
    ]
    places = {
        "source tokens": (-1.4, 0),
        "embed source": (-1.4, 1),
        "look": (-3.2, 3),
        "norm 1": (-1.4, 3.8),
        "think": (-3.2, 4.6),
        "norm 2": (-1.4, 5.4),
        "places": (0.8, 2),
        "target tokens": (3.0, 0),
        "embed target": (3.0, 1),
        "look back": (4.8, 3),
        "norm 3": (3.0, 3.8),
        "consult": (1.2, 4.6),
        "norm 4": (3.0, 5.4),
        "think on": (4.8, 6.2),
        "norm 5": (3.0, 7.0),
        "linear, softmax": (3.0, 8),
        "output": (3.0, 9),
    }
    picture = diagram(found, places, WORDS)
    return Verdict(
        *compared(found, encoder + decoder, control), drawn(picture, found), figure=picture
    )


@claim(
    "6.6-fig6.4",
    title="The vision transformer, as a picture",
    kind="figure",
    of=("models.ViT", "plot.Diagram"),
    cites="Dosovitskiy et al. 2021",
)
def vision(key):
    r"""Patches become vectors by one linear map, the token of the class is put in front, places are
    added, an encoder follows, and the class is read at the first place. The arrows of the picture
    are those of the program.
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
        found = flow(lambda net, x: net(x), net, {"image": jnp.ones((1, 8, 8))})
        block = "trunk.blocks.layers"
        return renamed(
            found,
            {
                "stem": "patches",
                "class_token": "class token",
                "positions": "places",
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

    found = arrows(True)
    expected = [
        ("image", "patches"),
        ("patches", "class token"),
        ("class token", "places"),
        ("places", "norm 1"),
        ("norm 1", "attention"),
        ("attention", "add 1"),
        ("places", "add 1"),
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
        "places",
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
        "class token": "class token in front",
        "add 1": "+",
        "add 2": "+",
        "norm 1": "norm",
        "norm 2": "norm",
        "norm 3": "norm",
        "output": "class",
        "places": "+ places",
    }
    picture = diagram(found, places, words)
    return Verdict(*compared(found, expected, arrows(False)), drawn(picture, found), figure=picture)
