"""`thetax classify`: what a photograph shows, in ImageNet's words."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.markup import escape
from rich.table import Column, Table

from ..data import read_picture
from ..models import resnet_imagenet
from ..models.interop.imagenet import SIDE
from .app import FAILED, app, complain, out, print_json


@app.command(name="classify")
def classify(photo: Path, /, *more: Path, top: int = 5, json: bool = False) -> int:
    """Name what a photograph shows, by a ResNet-50 trained on ImageNet (fetched once, 95 MB).

    Parameters
    ----------
    photo
        Any picture file; its middle square is looked at.
    more
        More of them.
    top
        How many names to give.
    json
        One JSON object a photograph instead of tables.
    """
    if not 1 <= top <= 1000:
        raise ValueError(f"top is a number of names from 1 to 1000; got {top}.")
    pictures = []
    for file in (photo, *more):  # all before the download; a bad one does not lose the others
        try:
            pictures.append((file, read_picture(file, side=SIDE)))
        except (ValueError, OSError) as trouble:
            complain(trouble, json=json)
    if pictures:
        name_all(pictures, top=top, json=json)
    return 0 if len(pictures) == 1 + len(more) else FAILED


def name_all(pictures: list[tuple[Path, np.ndarray]], *, top: int, json: bool) -> None:
    """Shows what the network sees in each."""
    model, classes = resnet_imagenet()
    judge = jax.jit(lambda model, x: jax.nn.softmax(model(x.astype(jnp.float32) / 255)))
    for file, picture in pictures:
        p = np.asarray(judge(model, picture))
        show(file, [(classes[i], float(p[i])) for i in np.argsort(-p)[:top]], json=json)


def show(file: Path, names: list[tuple[str, float]], *, json: bool) -> None:
    """The names with their probabilities, the likeliest first."""
    if json:
        print_json(
            {"photo": str(file), "names": [{"name": name, "probability": p} for name, p in names]}
        )
        return
    table = Table(escape(file.name), Column("probability", justify="right"))
    for name, p in names:
        table.add_row(escape(name), f"{p:.3f}")
    out.print(table)
