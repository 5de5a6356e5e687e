"""The real datasets, fetched, against what is known of them. Run with `pytest -m network`."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import safe_open

from thetax.data import Gguf, fetch_model, load, load_brown, load_verses, read_gguf
from thetax.data.datasets import store
from thetax.data.io.sources import Package

pytestmark = pytest.mark.network

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def images(name: str, shape: tuple[int, ...]):
    data = load(name)
    assert data.test is not None
    for xs, ys in (data.train, data.test):
        assert xs.dtype == np.float32
        assert ys.dtype == np.int32
        assert (xs.min(), xs.max()) == (0.0, 1.0)
        assert xs.shape == (len(ys), *shape)
    assert len(data.classes) == 10
    return data.train, data.test


def test_mnist():
    (xs, ys), (_, test) = images("mnist", (28, 28))
    assert np.bincount(ys).tolist() == MNIST_TRAIN
    assert np.bincount(test).tolist() == MNIST_TEST
    assert ys[:5].tolist() == [5, 0, 4, 1, 9]
    assert (round(float(xs.mean(dtype=float)), 4), round(float(xs.std(dtype=float)), 4)) == (
        0.1307,
        0.3081,
    )


def test_fashion_mnist():
    (xs, ys), (_, test) = images("fashion-mnist", (28, 28))
    assert np.bincount(ys).tolist() == [6000] * 10
    assert np.bincount(test).tolist() == [1000] * 10
    assert (round(float(xs.mean(dtype=float)), 5), round(float(xs.std(dtype=float)), 5)) == (
        0.28604,
        0.35302,
    )


def test_cifar_10():
    (xs, ys), (test_xs, test) = images("cifar-10", (3, 32, 32))
    assert np.bincount(ys).tolist() == [5000] * 10
    assert np.bincount(test).tolist() == [1000] * 10
    np.testing.assert_allclose(
        xs.mean(axis=(0, 2, 3), dtype=float), [0.4914, 0.4822, 0.4465], atol=1e-4
    )
    np.testing.assert_allclose(
        xs.std(axis=(0, 2, 3), dtype=float), [0.2470, 0.2435, 0.2616], atol=1e-4
    )
    pixels = np.rint(test_xs * 255).astype(np.uint8).reshape(-1, 3072)
    official = hashlib.sha256(
        np.concatenate([test[:, None].astype(np.uint8), pixels], axis=1).tobytes()
    )
    assert (
        official.hexdigest() == "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
    )  # test_batch.bin


def test_default():
    data = load("default")
    xs, ys = data.train
    assert xs.shape == (10_000, 3)
    assert data.features == ("student", "balance", "income")
    assert np.bincount(ys).tolist() == [9667, 333]
    np.testing.assert_allclose(
        xs.mean(axis=0, dtype=float), [0.2944, 835.3749, 33516.98], rtol=1e-5
    )


def test_nyse():
    """With five lags the linear forecast explains 41 % of the test variance, with the weekday 46 %,
    yesterday's value 18 %.
    """
    data = load("nyse")
    assert data.test is not None
    (train_x, train_y), (test_x, test_y) = data.train, data.test
    assert (train_x.shape, test_x.shape) == ((4280, 4), (1770, 4))
    xs = np.concatenate([train_x, test_x])
    ys = np.concatenate([train_y, test_y])
    np.testing.assert_array_equal(xs[1:, 1], ys[:-1])  # tomorrow's volume is in tomorrow's row
    lags = np.concatenate([xs[i : len(xs) - 4 + i, :3] for i in range(5)], axis=1)
    rows = np.c_[np.ones(len(lags)), lags]
    targets = ys[4:]
    n = len(train_y) - 4
    explained = lambda guess: 1 - np.mean((test_y - guess) ** 2) / np.var(test_y)
    linear = lambda rows: explained(
        rows[n:] @ np.linalg.lstsq(rows[:n], targets[:n], rcond=None)[0]
    )
    week = xs[4:, 3].astype(int)
    assert np.bincount(week).tolist() == [
        1171,
        1233,
        1221,
        1214,
        1207,
    ]  # Mondays first, without the first week
    assert abs(linear(rows) - 0.4129) < 1e-4
    assert abs(linear(np.c_[rows, np.eye(5)[week, 1:]]) - 0.4596) < 1e-4
    assert abs(explained(test_x[:, 1]) - 0.180) < 0.001


def test_auto():
    """ISL §3: a line through horsepower alone explains 60.6 % of the variance."""
    data = load("auto")
    xs, ys = data.train
    assert xs.shape == (392, 9)
    assert xs[:, 6:].sum(axis=0).tolist() == [245, 68, 79]
    assert (data.features[2], data.features[8]) == ("horsepower", "japanese")
    slope, offset = np.polyfit(xs[:, 2], ys, 1)
    np.testing.assert_allclose([offset, slope], [39.9359, -0.1578], rtol=1e-3)
    assert abs(np.corrcoef(xs[:, 2], ys)[0, 1] ** 2 - 0.606) < 5e-4


def test_gutenberg():
    data = load("gutenberg")
    texts = dict(zip(data.classes, data.train[0].tolist()))
    assert len(texts) == 18
    assert sum(map(len, texts.values())) == 11_744_886
    assert len(texts["carroll-alice"]) == 144_395
    assert len(texts["bible-kjv"]) == 4_332_554
    assert "\nCall me Ishmael." in texts["melville-moby_dick"]
    assert "Cæsar" in texts["shakespeare-caesar"]
    assert not any("\r" in text or "\x1a" in text for text in texts.values())


def test_spambase():
    data = load("spambase")
    xs, ys = data.train
    assert xs.shape == (4601, 57)
    assert len(data.features) == 57
    assert np.bincount(ys).tolist() == [2788, 1813]
    np.testing.assert_allclose(
        xs.mean(axis=0, dtype=float)[[0, 54, 56]], [0.10455, 5.1915, 283.289], rtol=1e-4
    )
    assert xs[:, 56].max() == 15841


def test_imdb():
    """Both halves are whole and even, any stretch of them is a sample of both classes, and no label
    contradicts.
    """
    data = load("imdb")
    assert data.test is not None
    for xs, ys in (data.train, data.test):
        assert (xs.shape, np.bincount(ys).tolist()) == ((25_000,), [12_500, 12_500])
        assert abs(ys[:2000].mean() - 0.5) < 0.05
    texts = np.concatenate([data.train[0], data.test[0]]).tolist()
    labels = [*data.train[1], *data.test[1]]
    assert len(set(texts)) == len(set(zip(texts, labels))) == 49_582
    assert sum(len(text.encode()) for text in texts) == 65_483_508
    assert (
        sum(text.startswith("I rented I AM CURIOUS-YELLOW") for text in data.train[0].tolist()) == 1
    )
    assert (
        sum(text.startswith("Once again Mr. Costner has dragged") for text in data.test[0].tolist())
        == 1
    )


def test_mnist_is_the_same_from_every_client(tmp_path):
    """An idx archive from one registry, pixels as text from another: not a bit of difference."""
    packages = [source for source in store._find("mnist").sources if isinstance(source, Package)]
    assert sorted(package.client for package in packages) == ["npm", "pip"]
    first, second = (package.form.read(package.files(tmp_path)) for package in packages)
    assert list(first) == list(second)
    for name in first:
        assert first[name].dtype == second[name].dtype
        np.testing.assert_array_equal(first[name], second[name])


def test_verses():
    """Two texts of one length: where both divide a chapter alike, long verses are long in both."""
    verses = load_verses()
    assert len(verses.english) == len(verses.german) == 30_968
    assert (len(np.unique(verses.book)), int(verses.aligned.sum())) == (66, 28_128)
    place = list(zip(verses.book.tolist(), verses.chapter.tolist(), verses.verse.tolist()))
    assert place == sorted(set(place))
    at = lambda *where: verses.select(np.array([place.index(where)]))
    assert at(0, 1, 1).english[0] == "In the beginning God created the heaven and the earth."
    assert at(0, 1, 1).german[0] == "Am Anfang schuf Gott Himmel und Erde."
    assert (
        at(0, 2, 14)
        .german[0]
        .startswith("Das dritte Wasser heißt Hiddekel, das fließt vor Assyrien.")
    )
    assert (
        at(18, 23, 1)
        .english[0]
        .startswith("A Psalm of David. The LORD is my shepherd; I shall not want.")
    )
    letters = set("".join([*verses.english, *verses.german]))
    assert not letters & set("[]<>\n\t\xa0")
    lengths = np.log([[len(e), len(g)] for e, g in zip(verses.english, verses.german)]).T
    related = lambda which: np.corrcoef(lengths[:, which])[0, 1]
    assert related(verses.aligned) > 0.93
    assert related(~verses.aligned) < 0.62


def test_brown():
    """The counts that are published for the corpus, and classes within one in a hundred of those
    published.
    """
    found = load_brown()
    tokens = [tag for tags in found.tags for tag in tags]
    assert (len(found.words), len(tokens), len(set(tokens))) == (57_340, 1_161_192, 472)
    assert np.bincount(found.document, minlength=500).min() > 0
    assert np.bincount(found.genre).tolist()[:3] == [4623, 2997, 1751]
    assert found.words[0][:4] == ["The", "Fulton", "County", "Grand"]
    assert found.tags[0][:4] == ["AT", "NP-TL", "NN-TL", "JJ-TL"]
    counts = Counter(tag for tags in found.universal for tag in tags)
    published = {
        "NOUN": 275_558,
        "VERB": 182_750,
        ".": 147_565,
        "ADP": 144_766,
        "DET": 137_019,
        "CONJ": 38_151,
    }
    assert all(abs(counts[name] - number) < 0.01 * number for name, number in published.items())


def test_minilm():
    folder = fetch_model("minilm")
    with safe_open(folder / "model.safetensors", "numpy") as file:
        assert len(file.keys()) == 104
        assert file.get_slice("embeddings.word_embeddings.weight").get_shape() == [30_522, 384]
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 6
    assert len((folder / "vocab.txt").read_text().split("\n")) == 30_523


def test_smollm2():
    """Its weights are those the library of the format reads."""
    folder = fetch_model("smollm2")
    metadata, tensors = read_gguf(folder)
    assert metadata["general.architecture"] == "llama"
    assert len(tensors) == 272
    table = Gguf(metadata, tensors).token_table()
    assert (len(table.tokens), len(table.merges), table.special_ids["eos"]) == (49_152, 48_900, 2)
    theirs = {
        tensor.name: tensor
        for tensor in GGUFReader(folder / "SmolLM2-135M-Instruct.Q4_1.gguf").tensors
    }
    for name in ("blk.0.attn_q.weight", "blk.29.ffn_norm.weight", "blk.7.ffn_down.weight"):
        np.testing.assert_array_equal(
            tensors[name], dequantize(theirs[name].data, theirs[name].tensor_type)
        )
