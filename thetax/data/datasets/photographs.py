"""Photographs: reading an image file as a square of pixels, and five example photographs."""

import io
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from ...check import expect_count
from ..io.bounded_read import Blob, File, contents, reading
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_MAX_BYTES = 256 << 20  # of an image file
_GREY_16_BIT = ("I", "I;16", "I;16L", "I;16B")  # modes of Pillow


def read_image(file: File, *, image_size: int) -> UInt8[np.ndarray, "3 {image_size} {image_size}"]:
    """An image file as RGB pixels: the central square, resized to `image_size` pixels (bilinear).

    The EXIF orientation is applied, an animation gives its first frame, and transparent pixels
    become white. All formats of Pillow can be read. Images with so many pixels that they could
    exhaust the memory are refused.

    >>> from PIL import Image
    >>> from thetax.data.io.bounded_read import Blob
    >>> file = io.BytesIO()
    >>> Image.new("L", (30, 20), 7).save(file, "PNG")
    >>> read_image(Blob("grey.png", file.getvalue()), image_size=4)[:, 0, 0].tolist()
    [7, 7, 7]
    """
    from PIL import Image, UnidentifiedImageError

    if not isinstance(file, Blob) and Path(file).is_dir():
        raise ValueError(f"{file}: is a folder. Give an image file.")
    try:
        name, data = contents(file, limit=_MAX_BYTES)
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file. Check the path.") from None
    expect_count("read_image", image_size=image_size)
    try:
        with warnings.catch_warnings(), reading(name, "an image"):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as picture:
                image = _to_rgb(picture)
    except ValueError as error:
        if isinstance(
            error.__cause__, Image.DecompressionBombError | Image.DecompressionBombWarning
        ):
            raise ValueError(
                f"{name}: has more than {Image.MAX_IMAGE_PIXELS:,} pixels, too many to open. Make "
                "it smaller."
            ) from None
        if isinstance(error.__cause__, UnidentifiedImageError):
            raise ValueError(
                f"{name}: is not an image in a supported format, such as PNG or JPEG."
            ) from None
        raise
    width, height = image.size
    short = min(width, height)
    left = (width - short) // 2
    top = (height - short) // 2
    square = image.crop((left, top, left + short, top + short)).resize(
        (image_size, image_size), Image.Resampling.BILINEAR
    )
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def _to_rgb(picture):
    """The first frame in RGB, with the EXIF orientation applied."""
    from PIL import Image, ImageOps

    picture.seek(0)
    picture.load()
    turned = ImageOps.exif_transpose(picture)
    if turned.mode in _GREY_16_BIT:
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
    about="five photographs of birds and pets as image files (load_arrays), for ImageNet "
    "classifiers",
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
