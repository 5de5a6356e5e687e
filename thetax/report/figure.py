"""A figure on a page: one drawing that takes on the light or the dark theme of its reader, and a
PNG beside it.
"""

import io
import re
from typing import Any

from matplotlib.figure import Figure

from ..plot import DARK, LIGHT, draw

RESOLUTION = 130  # dots per inch


def variables() -> tuple[str, str]:
    """The colours of both themes as CSS, light first."""
    light, dark = (
        ";".join(f"--{role}:{colour}" for role, colour in t.roles.items()) for t in (LIGHT, DARK)
    )
    return light, dark


def render(result: Any, name: str, says: str) -> tuple[str, bytes]:
    """The result as inline SVG whose colours follow the page, and as a PNG on light paper."""
    figure = draw(result, theme=LIGHT)
    with LIGHT.apply():
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=RESOLUTION)
        figure.set_layout_engine("none")  # the labels have found their places
        return _svg(figure, name, says), png.getvalue()


def _svg(figure: Figure, name: str, says: str) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'(id="|url\(#|href="#)', rf"\g<1>{name}-", text
    )  # ids must be unique on the page
    for role, colour in LIGHT.roles.items():
        text = text.replace(colour, f"var(--{role})")
    width, height = (
        float(size) * 96 / 72 for size in re.findall(r'(?:width|height)="([\d.]+)pt"', text)[:2]
    )
    style = f"max-width:{1.3 * width:.0f}px;aspect-ratio:{width:.0f}/{height:.0f}"
    opening = f'<svg role="img" aria-label="{says}" style="{style}"'
    text = re.sub(r'(?:width|height)="[\d.]+pt" ?', "", text, count=2)
    return text.replace("<svg", opening, 1).strip()
