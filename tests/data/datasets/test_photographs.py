"""Picture files: every kind is read alike, and what is none is said to be none."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from thetax.data import read_image
from thetax.data.io.bounded_read import Blob


def encoded(picture: Image.Image, kind: str = "PNG", **how) -> Blob:
    file = io.BytesIO()
    picture.save(file, kind, **how)
    return Blob(f"a.{kind.lower()}", file.getvalue())


def coloured(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(("height", "width"), [(4, 4), (4, 9), (8, 4)])
def test_it_is_the_middle_square(height, width):
    pixels = coloured(height, width)
    top = (height - 4) // 2
    left = (width - 4) // 2
    found = read_image(encoded(Image.fromarray(pixels)), image_size=4)
    np.testing.assert_array_equal(found, pixels[top : top + 4, left : left + 4].transpose(2, 0, 1))


def test_resizing_keeps_a_slope():
    """A picture that grows evenly from left to right does so at half the size."""
    ramp = np.repeat(np.arange(0, 240, 4, dtype=np.uint8)[None, :, None], 60, axis=0).repeat(
        3, axis=2
    )
    found = read_image(encoded(Image.fromarray(ramp)), image_size=30)
    np.testing.assert_allclose(
        found[:, 10, 2:-2], np.tile(2 + 8 * np.arange(2, 28), (3, 1)), atol=1
    )


def test_other_modes_are_converted_to_rgb():
    grey = np.full((3, 3), 77, np.uint8)
    for mode in ("L", "P", "CMYK", "LA", "RGBA"):
        found = read_image(
            encoded(Image.fromarray(grey).convert(mode), "TIFF" if mode == "CMYK" else "PNG"),
            image_size=3,
        )
        assert (abs(found.astype(int) - 77) <= 1).all(), mode
    deep = read_image(encoded(Image.fromarray(grey.astype(np.uint16) * 257)), image_size=3)
    assert (deep == 77).all()
    assert (read_image(encoded(Image.fromarray(grey > 50)), image_size=3) == 255).all()


def test_transparent_pixels_are_white():
    clear = np.zeros((2, 2, 4), np.uint8)
    clear[0] = 10, 20, 30, 255
    found = read_image(encoded(Image.fromarray(clear)), image_size=2)
    assert found[:, 0, 0].tolist() == [10, 20, 30]
    assert found[:, 1, 0].tolist() == [255, 255, 255]


def test_the_exif_orientation_is_applied():
    """Orientation 6: the first row of the file is the right edge."""
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[0] = 255
    exif = Image.Exif()
    exif[274] = 6
    found = read_image(encoded(Image.fromarray(pixels), exif=exif), image_size=8)
    assert (found[:, :, -1] == 255).all()
    assert (found[:, :, :-1] == 0).all()


def test_an_animation_gives_its_first_frame():
    images = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    found = read_image(
        encoded(images[0], "GIF", save_all=True, append_images=images[1:]), image_size=4
    )
    assert found[:, 0, 0].tolist() == [255, 0, 0]


def test_files_that_are_not_images_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("no picture")
    with pytest.raises(ValueError, match=r"a\.txt: is not an image in a supported format"):
        read_image(tmp_path / "a.txt", image_size=4)
    with pytest.raises(ValueError, match=r"b\.png: no such file. Check the path"):
        read_image(tmp_path / "b.png", image_size=4)
    with pytest.raises(ValueError, match=r"is a folder\. Give an image file"):
        read_image(tmp_path, image_size=4)
    with pytest.raises(ValueError, match="is not an image in a supported format"):
        read_image(Blob("empty.png", b""), image_size=4)
    with pytest.raises(ValueError, match="image_size must be an integer >= 1; got 0"):
        read_image(encoded(Image.new("L", (2, 2))), image_size=0)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
def test_a_truncated_image_is_refused(kind):
    name, data = encoded(Image.fromarray(coloured(40, 40)), kind)
    with pytest.raises(ValueError, match="not readable as an image"):
        read_image(Blob(name, data[: len(data) // 2]), image_size=4)


@pytest.mark.parametrize("side", [10_000, 60_000], ids=["large", "larger"])
def test_a_bomb_is_not_opened(side):
    """A few bytes that announce more pixels than the memory may hold."""
    chunk = lambda kind, data: (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    )
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    bomb = Blob(
        "bomb.png",
        b"\x89PNG\r\n\x1a\n"
        + header
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b""),
    )
    with pytest.raises(
        ValueError,
        match=r"bomb\.png: has more than 89,478,485 pixels, too many to open. Make it smaller",
    ):
        read_image(bomb, image_size=4)
