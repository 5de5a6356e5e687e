"""`thetax classify`: classify photographs with an ImageNet network."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.markup import escape
from rich.table import Column, Table

from ..data import read_image
from ..models import resnet_imagenet
from ..models.interop.imagenet import IMAGE_SIZE
from .app import FAILED, app, out, print_json, report_error


@app.command(name="classify")
def classify(photo: Path, /, *more: Path, top_k: int = 5, json: bool = False) -> int:
    """Classify photographs with a ResNet-50 trained on ImageNet (downloaded once, 95 MB).

    Parameters
    ----------
    photo
        Image file; the central square is classified.
    more
        More image files.
    top_k
        Number of classes to print.
    json
        Print one JSON object per photograph instead of tables.
    """
    if not 1 <= top_k <= 1000:
        raise ValueError(f"top_k must be an integer from 1 to 1000; got {top_k}.")
    images = []
    for file in (photo, *more):  # read before the download; the others go on if one file is bad
        try:
            images.append((file, read_image(file, image_size=IMAGE_SIZE)))
        except (ValueError, OSError) as error:
            report_error(error, json=json)
    if images:
        _classify_images(images, top_k=top_k, json=json)
    return 0 if len(images) == 1 + len(more) else FAILED


def _classify_images(images: list[tuple[Path, np.ndarray]], *, top_k: int, json: bool) -> None:
    model, classes = resnet_imagenet()
    predict = jax.jit(lambda model, x: jax.nn.softmax(model(x.astype(jnp.float32) / 255)))
    for file, image in images:
        p = np.asarray(predict(model, image))
        _show(file, [(classes[i], float(p[i])) for i in np.argsort(-p)[:top_k]], json=json)


def _show(file: Path, predictions: list[tuple[str, float]], *, json: bool) -> None:
    """Prints the classes with their probabilities, the most likely first."""
    if json:
        rows = [{"name": name, "probability": p} for name, p in predictions]
        return print_json({"photo": str(file), "names": rows})
    table = Table(escape(file.name), Column("probability", justify="right"))
    for name, p in predictions:
        table.add_row(escape(name), f"{p:.3f}")
    out.print(table)
