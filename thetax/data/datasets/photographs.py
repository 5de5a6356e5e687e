"""Photographs: any picture file as the square of pixels a network reads, and five that come from a
book.
"""

import io
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from ..io.bounded_read import Blob, File, contents, reading
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_LIMIT = 256 << 20  # bytes of a picture file
_DEEP = ("I", "I;16", "I;16L", "I;16B")  # grey of 16 bits


def read_picture(file: File, *, side: int) -> UInt8[np.ndarray, "3 side side"]:
    """The middle square of a picture, in red, green and blue, brought to `side` by `side` pixels
    (bilinear).

    It is turned as the camera says it was held; of one that moves the first image counts; what is
    transparent shows white. Whatever Pillow opens will do, unless it has so many pixels that it
    could fill the memory.

    >>> from PIL import Image
    >>> from thetax.data.io.bounded_read import Blob
    >>> file = io.BytesIO()
    >>> Image.new("L", (30, 20), 7).save(file, "PNG")
    >>> read_picture(Blob("grey.png", file.getvalue()), side=4)[:, 0, 0].tolist()
    [7, 7, 7]
    """
    from PIL import Image, UnidentifiedImageError

    if not isinstance(file, Blob) and Path(file).is_dir():
        raise ValueError(f"{file}: is a folder; give a picture.")
    try:
        name, data = contents(file, limit=_LIMIT)
    except FileNotFoundError:
        raise ValueError(f"{file}: there is no such file; check the path.") from None
    if side < 1:
        raise ValueError(f"side is at least 1; got {side}.")
    try:
        with warnings.catch_warnings(), reading(name, "a picture"):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as picture:
                whole = _upright(picture)
    except ValueError as trouble:
        if isinstance(
            trouble.__cause__, Image.DecompressionBombError | Image.DecompressionBombWarning
        ):
            most = f"{Image.MAX_IMAGE_PIXELS:,}"
            raise ValueError(
                f"{name}: has more than {most} pixels, too many to open; make it smaller."
            ) from None
        if isinstance(trouble.__cause__, UnidentifiedImageError):
            raise ValueError(
                f"{name}: is not a picture of a kind that can be read, such as PNG or JPEG."
            ) from None
        raise
    width, height = whole.size
    short = min(width, height)
    left = (width - short) // 2
    top = (height - short) // 2
    middle = whole.crop((left, top, left + short, top + short)).resize(
        (side, side), Image.Resampling.BILINEAR
    )
    return np.ascontiguousarray(np.asarray(middle).transpose(2, 0, 1))


def _upright(picture):
    """In red, green and blue, turned as it was held."""
    from PIL import Image, ImageOps

    picture.seek(0)
    picture.load()
    turned = ImageOps.exif_transpose(picture)
    if turned.mode in _DEEP:
        return Image.fromarray((np.asarray(turned) / 257).clip(0, 255).astype(np.uint8)).convert(
            "RGB"
        )
    if turned.has_transparency_data:
        layer = turned.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return turned.convert("RGB")


_SUMS = {
    "flamingo.jpg": "c0b864c8ca35fa52e7933e11bed12e337a899e974c29d202804f51bfff030445",
    "hawk.jpg": "04328a1ef3b7748aa76fac994eba1eabb79bc1fa60d91ca34eceb85a2a45822b",
    "huey.jpg": "5edea0f97ab6e2b5ab9267740ef708fdff6b1250cf5bf6179982f35f5c6674c9",
    "kitty.jpg": "d889979a50bc6f7f7bca371ce292bc505153010e6c5584356bf76c72459ffe3a",
    "weaver.jpg": "e1d779cfbcf5609e3baa609d1af46df0b72ef2b44991696ec8a329b59336d495",
}


def _bytes(files: Files) -> Arrays:
    return {name: np.frombuffer(files[name].data, np.uint8) for name in _SUMS}


_FORM = Form(tuple(_SUMS), _bytes, 16 << 20)

isl_photographs = Dataset(
    name="isl-photographs",
    about="five photographs of birds and pets, as files (load_arrays), for a network that knows "
    "ImageNet",
    licence="BSD-3-Clause as part of the ISLP package; G. James, D. Witten, T. Hastie, R. "
    "Tibshirani, J. Taylor",
    size=11_398_000,
    fingerprint="50fedc04977a31e4e9f3dbe40e1d825adb38490c47cb392630aab24e8295bc77",
    forms=(_FORM,),
    sources=(
        Web(
            "https://raw.githubusercontent.com/intro-stat-learning/ISLP/main/ISLP/data/book_images/",
            _FORM,
            _SUMS,
        ),
        Package(
            client="pip",
            name="ISLP",
            version="0.6.0",
            archive="islp-0.6.0-py3-none-any.whl",
            sha256="ca772cecca1747a2f84ee799a5503ddddbdf0e98f90c235494790c1d036c694b",
            size=16_593_353,
            form=_FORM,
            members={name: f"ISLP/data/book_images/{name}" for name in _SUMS},
        ),
    ),
)
