"""Where a transformer looks, which words a judgement hangs on, and how the vectors of words lie."""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ...explain import AttentionMaps, EmbeddingMap, TokenSaliency
from ..draw import new_figure, register_drawing
from ..theme import Theme

LAYERS, HEADS, NAMED, LONGEST = 6, 8, 32, 14  # drawn at most; letters of a name
ROOM, LETTER = (
    np.array([340.0, 260.0]),
    (4.8, 9.0),
)  # of a map, and of a letter in it: width and height in points


def shaded(values: np.ndarray, theme: Theme, *, most: float = 1.0) -> np.ndarray:
    """A picture of numbers from 0 up to `most`: clear to blue."""
    tint = np.broadcast_to(to_rgb(theme.blue), (*values.shape, 3))
    return np.concatenate([tint, np.clip(values / max(most, 1e-12), 0, 1)[..., None]], axis=-1)


def short(name: str) -> str:
    """A token's name, with its blanks to be seen, and not too long.

    >>> short(" the"), short("incomprehensibilities")
    ('␣the', 'incomprehensi…')
    """
    seen = name.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return seen if len(seen) <= LONGEST else seen[: LONGEST - 1] + "…"


def spread(count: int, most: int) -> list[int]:
    """At most so many of them, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


@register_drawing(AttentionMaps)
def _attention_maps(result: AttentionMaps, theme: Theme) -> Figure:
    layers = spread(len(result.weights), LAYERS)
    heads = spread(result.weights.shape[1], HEADS)
    figure = new_figure(0.8 * len(layers) + 3.5)
    parts: Any = figure.subfigures(2, 1, height_ratios=(0.8 * len(layers) + 0.3, 3.2))
    above, below = parts
    panels = above.subplots(len(layers), len(heads), squeeze=False)
    for i, layer in enumerate(layers):
        for j, head in enumerate(heads):
            axes = panels[i, j]
            shape: Any = "auto" if result.grid is None else "equal"
            axes.imshow(
                shaded(_drawn(result, layer, head), theme), interpolation="nearest", aspect=shape
            )
            bare(axes, theme)
            if i == 0:
                axes.set_title(f"head {head + 1}", fontsize=8)
            if j == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=8)
    left, right = below.subplots(1, 2, width_ratios=(1, 1.5))
    places = result.places
    left.imshow(
        shaded(places, theme, most=1.5 * len(result.tokens)), interpolation="nearest", aspect="auto"
    )
    for (i, j), count in np.ndenumerate(places):
        if places.size <= 96:
            left.text(j, i, f"{count:.3g}", ha="center", va="center", fontsize=7, color=theme.ink)
    left.set(
        xlabel="head", ylabel="layer", xticks=range(places.shape[1]), yticks=range(places.shape[0])
    )
    left.set_xticklabels([str(j + 1) for j in range(places.shape[1])], fontsize=7)
    left.set_yticklabels([str(i + 1) for i in range(places.shape[0])], fontsize=7)
    left.grid(visible=False)
    left.set_title("places looked at, of " + str(len(result.tokens)), fontsize=9)
    _rollout(right, result, theme)
    return figure


def _drawn(result: AttentionMaps, layer: int, head: int) -> np.ndarray:
    """A head's table, or what the token of the class sees of the image; the greatest weight is
    1.
    """
    table = result.weights[layer, head]
    picture = table if result.grid is None else table[0, 1:].reshape(result.grid)
    return picture / max(picture.max(), 1e-12)


def _rollout(axes: Any, result: AttentionMaps, theme: Theme) -> None:
    flow = result.rollout
    if result.grid is not None:
        picture = flow[0, 1:].reshape(result.grid)
        axes.imshow(shaded(picture, theme, most=float(picture.max())), interpolation="nearest")
        bare(axes, theme)
        axes.set_title("all layers: what arrives at the class", fontsize=9)
        return
    shown = min(len(flow), NAMED)
    axes.imshow(
        shaded(flow[:shown, :shown], theme, most=float(flow.max())),
        interpolation="nearest",
        aspect="auto",
    )
    names = [short(token) for token in result.tokens[:shown]]
    axes.set(xticks=range(shown), yticks=range(shown))
    axes.set_xticklabels(names, rotation=90, fontsize=6.5)
    axes.set_yticklabels(names, fontsize=6.5)
    axes.grid(visible=False)
    axes.set_title("all layers together", fontsize=9)


def bare(axes: Any, theme: Theme) -> None:
    """A frame without ticks."""
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=theme.grid)


@register_drawing(TokenSaliency)
def _token_saliency(result: TokenSaliency, theme: Theme) -> Figure:
    shown = min(len(result.tokens), 60)
    figure = new_figure(2.6)
    axes = figure.subplots()
    colours = [theme.blue if owed > 0 else theme.orange for owed in result.owed[:shown]]
    axes.bar(range(shown), result.size[:shown], color=colours, width=0.8)
    axes.set(xticks=range(shown), ylabel="slope of the logit", xlim=(-0.7, shown - 0.3))
    axes.set_xticklabels([short(token) for token in result.tokens[:shown]], rotation=90, fontsize=7)
    axes.grid(visible=False, axis="x")
    return figure


def apart(points: np.ndarray, names: list[str]) -> np.ndarray:
    """Which names can be written at their points without touching one before; by the sizes of
    letters, about.

    >>> apart(np.array([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0]]), ["the", "a", "of"]).tolist()
    [True, False, True]
    """
    wide = np.maximum(np.ptp(points, axis=0), 1e-12)
    places = points / wide * ROOM
    written = np.zeros(len(points), bool)
    half = np.array([[len(name) * LETTER[0], LETTER[1]] for name in names]).reshape(-1, 2) / 2
    for i in range(len(points)):
        touch = (np.abs(places - places[i]) < half + half[i]).all(axis=1)
        written[i] = not (touch & written).any()
    return written


@register_drawing(EmbeddingMap)
def _embedding_map(result: EmbeddingMap, theme: Theme) -> Figure:
    figure = new_figure(4.6)
    axes = figure.subplots()
    names = [short(token) for token in result.tokens]
    written = apart(result.points, names)
    axes.plot(*result.points[~written].T, "o", markersize=2, color=theme.muted)
    axes.plot(*result.points[written].T, linestyle="none")
    for i in np.flatnonzero(written):
        across, up = result.points[i]
        axes.text(
            across,
            up,
            names[i],
            fontsize=7,
            ha="center",
            va="center",
            color=theme.ink,
            clip_on=True,
        )
    axes.set(
        xlabel=f"first direction, {100 * result.share[0]:.0f} % of the variance",
        ylabel=f"second, {100 * result.share[1]:.0f} %",
    )
    return figure
