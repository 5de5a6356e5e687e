"""Figures of a page: inline SVG that follows the light or dark theme of the reader, and a PNG."""

import io
import re
from typing import Any

from matplotlib.figure import Figure

from ..plot import DARK, LIGHT, draw

RESOLUTION = 130  # dots per inch


def css_variables() -> tuple[str, str]:
    """The colours of both themes as CSS variables, light first."""
    light, dark = (
        ";".join(f"--{role}:{colour}" for role, colour in t.roles.items()) for t in (LIGHT, DARK)
    )
    return light, dark


def render(result: Any, slug: str, label: str) -> tuple[str, bytes]:
    """Draws a result as inline SVG whose colours follow the page theme, and as a PNG (light theme).

    `slug` makes the ids of the SVG unique on the page, `label` is read by screen readers.
    """
    figure = draw(result, theme=LIGHT)
    with LIGHT.apply():
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=RESOLUTION)
        figure.set_layout_engine("none")  # keep the layout that was computed for the PNG
        return _svg(figure, slug, label), png.getvalue()


def _svg(figure: Figure, slug: str, label: str) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # ids must be unique on the page
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{slug}-", text)
    for role, colour in LIGHT.roles.items():
        text = text.replace(colour, f"var(--{role})")
    width, height = (
        float(size) * 96 / 72 for size in re.findall(r'(?:width|height)="([\d.]+)pt"', text)[:2]
    )
    style = f"max-width:{1.3 * width:.0f}px;aspect-ratio:{width:.0f}/{height:.0f}"
    opening = f'<svg role="img" aria-label="{label}" style="{style}"'
    text = re.sub(r'(?:width|height)="[\d.]+pt" ?', "", text, count=2)
    return text.replace("<svg", opening, 1).strip()
