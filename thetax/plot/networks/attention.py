"""Figures of attention maps, token saliency and token embeddings."""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ...explain.attribution import AttentionMaps, EmbeddingMap, TokenSaliency
from ..draw import new_figure, register_drawing
from ..theme import Theme

MAX_LAYERS, MAX_HEADS = 6, 8  # of the attention maps
MAX_NAMED_TOKENS = 32  # tokens of the rollout
MAX_BARS = 60  # tokens of the saliency
MAX_NAME_LENGTH = 14  # characters of a token
AXES_SIZE = np.array([340.0, 260.0])  # of the embedding map: width and height in points
CHARACTER_SIZE = 4.8, 9.0  # of a label in it: width and height in points


def shade(values: np.ndarray, theme: Theme, *, max_value: float = 1.0) -> np.ndarray:
    """An image of the values, from transparent at 0 to blue at `max_value`."""
    tint = np.broadcast_to(to_rgb(theme.blue), (*values.shape, 3))
    return np.concatenate([tint, np.clip(values / max(max_value, 1e-12), 0, 1)[..., None]], axis=-1)


def format_token(name: str) -> str:
    """A token with visible whitespace, truncated if it is long.

    >>> format_token(" the"), format_token("incomprehensibilities")
    ('␣the', 'incomprehensi…')
    """
    text = name.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return text if len(text) <= MAX_NAME_LENGTH else text[: MAX_NAME_LENGTH - 1] + "…"


def evenly_spaced(count: int, max_count: int) -> list[int]:
    """At most `max_count` of the indices from 0 to `count` - 1, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, max_count)).round().astype(int)).tolist()


@register_drawing(AttentionMaps)
def _attention_maps(result: AttentionMaps, theme: Theme) -> Figure:
    layers = evenly_spaced(len(result.weights), MAX_LAYERS)
    heads = evenly_spaced(result.weights.shape[1], MAX_HEADS)
    figure = new_figure(0.8 * len(layers) + 3.5)
    parts: Any = figure.subfigures(2, 1, height_ratios=(0.8 * len(layers) + 0.3, 3.2))
    above, below = parts
    panels = above.subplots(len(layers), len(heads), squeeze=False)
    for i, layer in enumerate(layers):
        for j, head in enumerate(heads):
            axes = panels[i, j]
            shape: Any = "auto" if result.grid is None else "equal"
            axes.imshow(
                shade(_map(result, layer, head), theme), interpolation="nearest", aspect=shape
            )
            _frame(axes, theme)
            if i == 0:
                axes.set_title(f"head {head + 1}", fontsize=8)
            if j == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=8)
    left, right = below.subplots(1, 2, width_ratios=(1, 1.5))
    perplexity = result.perplexity
    left.imshow(
        shade(perplexity, theme, max_value=1.5 * len(result.tokens)),
        interpolation="nearest",
        aspect="auto",
    )
    for (i, j), count in np.ndenumerate(perplexity):
        if perplexity.size <= 96:
            left.text(j, i, f"{count:.3g}", ha="center", va="center", fontsize=7, color=theme.ink)
    left.set(
        xlabel="head",
        ylabel="layer",
        xticks=range(perplexity.shape[1]),
        yticks=range(perplexity.shape[0]),
    )
    left.set_xticklabels([str(j + 1) for j in range(perplexity.shape[1])], fontsize=7)
    left.set_yticklabels([str(i + 1) for i in range(perplexity.shape[0])], fontsize=7)
    left.grid(visible=False)
    left.set_title(f"effective positions, of {len(result.tokens)}", fontsize=9)
    _rollout(right, result, theme)
    return figure


def _map(result: AttentionMaps, layer: int, head: int) -> np.ndarray:
    """The attention weights of a head, or for images those of the class token on the patches;
    scaled to a maximum of 1.
    """
    weights = result.weights[layer, head]
    image = weights if result.grid is None else weights[0, 1:].reshape(result.grid)
    return image / max(image.max(), 1e-12)


def _rollout(axes: Any, result: AttentionMaps, theme: Theme) -> None:
    flow = result.rollout
    if result.grid is not None:
        image = flow[0, 1:].reshape(result.grid)
        axes.imshow(shade(image, theme, max_value=float(image.max())), interpolation="nearest")
        _frame(axes, theme)
        axes.set_title("rollout to the class token", fontsize=9)
        return
    shown = min(len(flow), MAX_NAMED_TOKENS)
    axes.imshow(
        shade(flow[:shown, :shown], theme, max_value=float(flow.max())),
        interpolation="nearest",
        aspect="auto",
    )
    names = [format_token(token) for token in result.tokens[:shown]]
    axes.set(xticks=range(shown), yticks=range(shown))
    axes.set_xticklabels(names, rotation=90, fontsize=6.5)
    axes.set_yticklabels(names, fontsize=6.5)
    axes.grid(visible=False)
    axes.set_title("attention rollout", fontsize=9)


def _frame(axes: Any, theme: Theme) -> None:
    """A frame without ticks."""
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, color=theme.grid)


@register_drawing(TokenSaliency)
def _token_saliency(result: TokenSaliency, theme: Theme) -> Figure:
    shown = min(len(result.tokens), MAX_BARS)
    figure = new_figure(2.6)
    axes = figure.subplots()
    colours = [
        theme.blue if share > 0 else theme.orange for share in result.gradient_times_input[:shown]
    ]
    axes.bar(range(shown), result.gradient_norm[:shown], color=colours, width=0.8)
    axes.set(xticks=range(shown), ylabel="gradient norm of the logit", xlim=(-0.7, shown - 0.3))
    axes.set_xticklabels(
        [format_token(token) for token in result.tokens[:shown]], rotation=90, fontsize=7
    )
    axes.grid(visible=False, axis="x")
    return figure


def select_labels(points: np.ndarray, names: list[str]) -> np.ndarray:
    """Which names can be drawn at their points without overlapping an earlier one, by the
    approximate size of a character.

    >>> select_labels(np.array([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0]]), ["the", "a", "of"]).tolist()
    [True, False, True]
    """
    extent = np.maximum(np.ptp(points, axis=0), 1e-12)
    centres = points / extent * AXES_SIZE
    width, height = CHARACTER_SIZE
    half = np.array([[len(name) * width, height] for name in names]).reshape(-1, 2) / 2
    labelled = np.zeros(len(points), bool)
    for i in range(len(points)):
        overlap = (np.abs(centres - centres[i]) < half + half[i]).all(axis=1)
        labelled[i] = not (overlap & labelled).any()
    return labelled


@register_drawing(EmbeddingMap)
def _embedding_map(result: EmbeddingMap, theme: Theme) -> Figure:
    figure = new_figure(4.6)
    axes = figure.subplots()
    names = [format_token(token) for token in result.tokens]
    labelled = select_labels(result.points, names)
    axes.plot(*result.points[~labelled].T, "o", markersize=2, color=theme.muted)
    axes.plot(*result.points[labelled].T, linestyle="none")
    for i in np.flatnonzero(labelled):
        x, y = result.points[i]
        axes.text(
            x,
            y,
            names[i],
            fontsize=7,
            ha="center",
            va="center",
            color=theme.ink,
            clip_on=True,
        )
    axes.set(
        xlabel=f"first component, {100 * result.explained_variance[0]:.0f} % of the variance",
        ylabel=f"second component, {100 * result.explained_variance[1]:.0f} %",
    )
    return figure
