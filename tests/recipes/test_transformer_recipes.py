"""The recipes of transformers, on small data of the right form; and their parts, each against a
plain loop.
"""

import math
import sys
from collections import defaultdict
from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.core import predict
from thetax.models import GPT, Translator, beam_search, greedy
from thetax.recipes import Job
from thetax.recipes.gpt import Bits, overlapping
from thetax.recipes.shared import ibm_model_1 as dictionary
from thetax.recipes.shared import transformer_training as attentive
from thetax.recipes.translate import BEGIN, END, TEST, VALID, held_out, pairs, said
from thetax.report.lenses.text import speaks, translates
from thetax.train import Run, Silent, log_loss, token_cross_entropy

novels = import_module("thetax.recipes.gpt")
patches = import_module("thetax.recipes.vit")

NOUNS = {
    "cat": "Katze",
    "dog": "Hund",
    "king": "König",
    "house": "Haus",
    "book": "Buch",
    "sea": "Meer",
}
VERBS = {"sees": "sieht", "loves": "liebt", "has": "hat", "fears": "fürchtet"}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


def test_every_token_but_the_first_is_a_target_once():
    texts = [np.arange(23), np.arange(100, 109)]
    for length in (1, 4, 5):
        xs, ys = overlapping(texts, length)
        assert xs.shape == ys.shape == (len(xs), length)
        targets = ys[ys >= 0]
        assert len(set(targets.tolist())) == len(targets)
        np.testing.assert_array_equal(targets, (xs + 1)[ys >= 0])
        for first in (0, 100):
            own = np.sort(targets[(targets >= first) & (targets < first + 100)])
            np.testing.assert_array_equal(own, np.arange(first + 1, first + 1 + len(own)))
    half = [(row >= 0).argmax() for row in overlapping(texts[:1], 4)[1]]
    assert half == [0] + [2] * (len(half) - 1)  # all but the first have half a window before them
    with pytest.raises(ValueError, match="no text that is held out has more than 30 tokens"):
        overlapping(texts, 30)


@pytest.mark.slow
def test_matrices_decay_and_nothing_else():
    model = GPT.init(7, 8, depth=3, heads=2, max_length=4, key=jr.key(0))
    told = attentive.matrices(model)
    assert told.embed.E
    assert told.positions.P
    block, chosen = model.trunk.blocks.layers, told.trunk.blocks.layers
    for name in ("Q", "K", "V", "O"):
        assert getattr(chosen.attention, name).W
        assert not getattr(chosen.attention, name).b
        assert getattr(block.attention, name).b.ndim == 2  # stacked offsets look like a matrix
    size = lambda flags: sum(
        leaf.size for leaf, flag in zip(jax.tree.leaves(model), jax.tree.leaves(flags)) if flag
    )
    assert size(told) == 7 * 8 + 4 * 8 + 3 * (4 * 8 * 8 + 2 * 8 * 32)
    step = attentive.decayed_adam(lambda count: 0.1, decay=0.5)
    still = jax.tree.map(jnp.zeros_like, model)
    update, _ = step.update(still, step.init(model), model)  # pyright: ignore[reportArgumentType]
    for flag, moved, leaf in zip(*map(jax.tree.leaves, (told, update, model))):
        np.testing.assert_allclose(moved, (-0.05 if flag else 0.0) * leaf, atol=1e-7)


def test_rates_rise_in_a_line_and_fall():
    root = attentive.warm_root(2.0, warm=10)
    np.testing.assert_allclose(
        np.stack([np.asarray(root(n)) for n in (0, 4, 9, 39)]), [0.2, 1.0, 2.0, 1.0], rtol=1e-6
    )
    cosine = attentive.warm_cosine(2.0, 100, warm=0.2)
    np.testing.assert_allclose(
        np.stack([np.asarray(cosine(n)) for n in (0, 10, 20, 60, 100)]), [0, 1, 2, 1, 0], atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_smoothed_loss_is_that_of_the_smoothed_label(strength):
    logits = jr.normal(jr.key(0), (5,))
    label = (1 - strength) * jnp.eye(5)[2] + strength / 5
    np.testing.assert_allclose(
        attentive.smooth_log_loss(strength)(logits, jnp.array(2)),
        log_loss(logits, label),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match=r"smoothing is a share of the label, .* got 1"):
        attentive.smooth_log_loss(1.0)


@pytest.mark.slow
def test_token_loss_in_blocks_is_that_of_the_whole(monkeypatch):
    """Rows with many targets count for more, and a row without any counts for nothing."""
    monkeypatch.setattr(attentive, "BLOCK", 2)
    model = GPT.init(5, 4, depth=1, heads=1, max_length=6, key=jr.key(0))
    xs = jr.randint(jr.key(1), (5, 6), 0, 5)
    ys = jnp.where(jnp.arange(6)[None] < jnp.array([6, 1, 0, 3, 6])[:, None], xs, -1)
    np.testing.assert_allclose(
        attentive.token_loss(model, (xs, ys)), token_cross_entropy(model, (xs, ys)), rtol=1e-5
    )
    even = GPT(model.embed, model.trunk, model.positions, jax.tree.map(jnp.zeros_like, _readout()))
    np.testing.assert_allclose(Bits(2.0)(even, (xs, ys)), math.log2(5) / 2, rtol=1e-5)


def _readout():
    return GPT.init(5, 4, depth=1, heads=1, max_length=6, tied=False, key=jr.key(0)).readout


@pytest.fixture
def books(monkeypatch):
    texts = np.array(["the cat sat. " * 300, "a dog ran off! " * 200], np.dtypes.StringDType())
    full = data.Data((texts, np.arange(2, dtype=np.int32)), None, ("cat", "dog"), ())
    monkeypatch.setattr(data, "load", lambda name, **where: full)
    return texts.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("pieces", "row"), [(280, "GPT, pieces"), (0, "GPT, characters")])
def test_gpt(books, tmp_path, monkeypatch, pieces, row):
    monkeypatch.setattr(novels, "STRETCH", 100)
    run = Run.begin(tmp_path / "r", recipe="gpt", arguments={}, seed=0)
    options = {
        "books": ("cat", "dog"),
        "pieces": pieces,
        "width": 16,
        "depth": 1,
        "heads": 2,
        "window": 8,
        "order": 1,
    }
    call = partial(recipes.gpt, job(run), **options, rate=1e-2, epochs=3, batch=20)
    outcome = call()
    table = {name: found["test bits per character"] for name, found in outcome.table.items()}
    assert list(table) == ["all alike", "n-gram chosen, order 1", row]
    assert table[row] < table["n-gram chosen, order 1"] < table["all alike"]
    assert speaks(outcome)
    text = "".join(book[round(0.9 * len(book)) :] for book in books)
    xs, ys = outcome.test
    log_p = np.asarray(jax.nn.log_softmax(predict(outcome.model, jnp.asarray(xs))))
    lost = -np.take_along_axis(log_p, np.maximum(ys, 0)[..., None], axis=2)[..., 0][ys >= 0]
    spelled = sum(len(outcome.tokens[token]) for token in ys[ys >= 0])
    assert 0.9 * len(text) < spelled < len(text)
    np.testing.assert_allclose(table[row], lost.sum() / math.log(2) / spelled, rtol=0.05)
    assert call().table == outcome.table


@pytest.mark.slow
def test_vit(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    ys = np.arange(480, dtype=np.int32) % 10
    xs = rng.random((10, 8, 8), np.float32)[ys] + 0.1 * rng.random(
        (480, 8, 8), np.float32
    )  # ten pictures, with noise
    full = data.Data((xs, ys), (xs[:100], ys[:100]), tuple("0123456789"), ())
    monkeypatch.setattr(data, "load", lambda name, **where: full)
    monkeypatch.setattr(patches, "WIDTHS", (4,))
    run = Run.begin(tmp_path / "r", recipe="vit", arguments={}, seed=0)
    options = {
        "data": "mnist",
        "patch": 2,
        "width": 16,
        "depth": 1,
        "heads": 2,
        "dropout": 0.0,
        "pixels": 0,
    }
    call = partial(recipes.vit, job(run), **options, rate=5e-3, epochs=12, lessons=1, batch=20)
    outcome = call()
    assert list(outcome.table) == ["perceptron", "convolutions", "vision transformer"]
    assert outcome.table["vision transformer"]["test error %"] < 20
    assert outcome.table["convolutions"]["epochs"] == 1
    assert outcome.model(jnp.asarray(outcome.test[0][0])).shape == (10,)
    assert call().table == outcome.table


@pytest.fixture
def nothing_is_loaded(monkeypatch):
    def refuse(*args, **where):
        raise AssertionError("data are loaded though an option is wrong")

    monkeypatch.setattr(data, "load", refuse)
    monkeypatch.setattr(data, "load_verses", refuse)


@pytest.mark.parametrize("patch", [5, 0, -7])
def test_vit_refuses_patches_that_do_not_tile(nothing_is_loaded, patch):
    with pytest.raises(
        ValueError, match=f"patch: squares must tile an image of 28 by 28: .* got {patch}"
    ):
        recipes.vit(job(), patch=patch)


def test_translate_complains_before_it_loads(nothing_is_loaded, monkeypatch):
    with pytest.raises(ValueError, match="pieces: the bytes and two marks are 258 already; got 0"):
        recipes.translate(job(), pieces=0)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(
        ImportError, match=r"needs the library sacrebleu: pip install 'thetax\[text\]'"
    ):
        recipes.translate(job())


ENGLISH = ["the house is small", "the book is old", "a house", "a small book is a book"]
GERMAN = ["das Haus ist klein", "das Buch ist alt", "ein Haus", "ein kleines Buch ist ein Buch"]


def counted(rounds: int) -> tuple[dict[tuple[str, str], float], list[float]]:
    """IBM's model 1 in loops over words."""
    rows = [(("", *one.split()), other.split()) for one, other in zip(ENGLISH, GERMAN)]
    words = {g for _, other in rows for g in other}
    t = defaultdict(lambda: 1 / len(words))
    told = []
    for _ in range(rounds):
        count = defaultdict(float)
        total = defaultdict(float)
        log_p = []
        for one, other in rows:
            for g in other:
                whole = sum(t[g, e] for e in one)
                log_p.append(math.log(whole / len(one)))
                for e in one:
                    count[g, e] += t[g, e] / whole
                    total[e] += t[g, e] / whole
        t = {(g, e): c / total[e] for (g, e), c in count.items()}
        told.append(float(np.mean(log_p)))
    return t, told


@pytest.mark.parametrize("rounds", [1, 6])
def test_dictionary_is_em_in_loops(rounds):
    found = dictionary.Dictionary.fit(ENGLISH, GERMAN, rounds=rounds)
    t, told = counted(rounds)
    np.testing.assert_allclose(found.likelihood, told, rtol=1e-12)
    assert set(found.meaning) == {e for _, e in t}
    for e, g in found.meaning.items():
        best = max(p for (_, other), p in t.items() if other == e)
        np.testing.assert_allclose([found.chance[e], t[g, e]], [best, best], rtol=1e-12)


def test_dictionary_finds_the_words_and_keeps_what_it_does_not_know():
    found = dictionary.Dictionary.fit(ENGLISH, GERMAN, rounds=30)
    assert (np.diff(found.likelihood) > 0).all()
    assert found.translate("a house, Orpah; the old book!") == "ein Haus, Orpah; das alt Buch!"
    with pytest.raises(ValueError, match="text 1 has no words"):
        dictionary.Dictionary.fit(["a", "?!"], ["ein", "was"])
    with pytest.raises(ValueError, match="a target for each source, got 1 for 2"):
        dictionary.Dictionary.fit(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="rounds of EM must be at least 1; got 0"):
        dictionary.Dictionary.fit(["a"], ["c"], rounds=0)


@pytest.fixture
def verses(monkeypatch):
    """Sentences of a subject, a verb and an object; a few in the books that are held out."""
    rng = np.random.default_rng(0)
    rows = [(*rng.choice(list(NOUNS), 2), rng.choice(list(VERBS))) for _ in range(300)]
    english = np.array([f"The {a} {v} the {b}." for a, b, v in rows], np.dtypes.StringDType())
    german = [f"{NOUNS[a]} {VERBS[v]} {NOUNS[b]}." for a, b, v in rows]
    number = [
        data.Verses._field_defaults["books"].index(name) for name in (VALID[0], TEST[0], "Genesis")
    ]
    book = np.array(number, np.int32)[[0] * 10 + [1] * 10 + [2] * 280]
    same = np.arange(300) != 299
    few = data.Verses(english, np.array(german, np.dtypes.StringDType()), book, book, book, same)
    monkeypatch.setattr(data, "load_verses", lambda **where: few)
    return few


def test_pairs_are_what_is_read_and_what_follows(verses):
    known = data.BytePairs.fit([*verses.english, *verses.german], size=300, special=(BEGIN, END))
    (sources, read), after = pairs(verses.select(np.arange(5)), known, 40)
    assert [known.decode(row) for row in sources] == verses.english[:5].tolist()
    assert [known.decode(row) for row in after] == [
        f"{text}{END}" for text in verses.german[:5].tolist()
    ]
    np.testing.assert_array_equal(
        read[:, 1:], np.where(after == known.number(END), -1, after)[:, :-1]
    )
    assert (read[:, 0] == known.number(BEGIN)).all()
    lengths = np.maximum((sources >= 0).sum(axis=1), (after >= 0).sum(axis=1))
    (kept, _), _ = pairs(verses.select(np.arange(5)), known, int(lengths.min()), whole=True)
    assert len(kept) == (lengths == lengths.min()).sum()
    (cut, _), last = pairs(verses.select(np.arange(5)), known, 4)
    assert cut.shape == last.shape == (5, 4)
    np.testing.assert_array_equal(cut, sources[:, :4])


def test_no_book_is_in_two_parts():
    books = np.arange(66)
    every = data.Verses(books, books, books, books, books, books == books)
    parts = [set(part.book.tolist()) for part in held_out(every)]
    assert set.union(*parts) == set(range(66))
    assert sum(map(len, parts)) == 66
    assert [every.books[i] for i in sorted(parts[2])] == list(TEST)
    assert len(parts[1]) == len(VALID)


@pytest.mark.slow
def test_said_is_greedy_or_a_beam(verses):
    known = data.BytePairs.fit([*verses.english, *verses.german], size=270, special=(BEGIN, END))
    (sources, _), _ = pairs(verses.select(np.arange(2)), known, 6)
    model = Translator.init(None, len(known), 8, depth=1, heads=2, key=jr.key(0))
    begin = known.number(BEGIN)
    end = known.number(END)
    for width, penalty in ((1, 0.0), (3, 1.0)):
        rows = []
        for source in jnp.asarray(sources):
            cell, state = model.decoder(source, length=5)
            where = {"first": begin, "end": end, "length": 5, "state": state}
            rows.append(
                greedy(cell, **where).tokens
                if width == 1
                else beam_search(cell, beam_width=width, length_penalty=penalty, **where).tokens[0]
            )
        texts = said(model, sources, known, length=5, width=width, penalty=penalty)
        assert texts == [
            known.decode([t for t in np.asarray(row) if t not in (-1, end)]) for row in rows
        ]


@pytest.fixture
def one_shape(monkeypatch):
    """All batches of one length, and 279 verses in 9 batches: one program a network."""
    monkeypatch.setattr(import_module("thetax.recipes.translate"), "LENGTHS", 1)
    return {
        "width": 16,
        "depth": 1,
        "heads": 2,
        "length": 24,
        "dropout": 0.0,
        "beam_width": 2,
        "warm": 10,
        "batch": 31,
    }


@pytest.mark.slow
def test_translate(verses, one_shape, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="translate", arguments={}, seed=0)
    call = partial(
        recipes.translate, job(run), **one_shape, pieces=300, rate=1e-2, epochs=6, lessons=0
    )
    outcome = call()
    assert list(outcome.table) == ["dictionary", "transformer"]
    assert set(outcome.table["transformer"]) == {"test BLEU", "by a beam of 2", "valid loss"}
    assert outcome.history["valid loss"][-1] < outcome.history["valid loss"][0] / 2
    assert len(outcome.train[1]) == 279
    assert len(outcome.test[1]) == 10
    assert translates(outcome)
    assert outcome.tokens[:2] == (BEGIN, END)
    assert call().table == outcome.table


@pytest.mark.slow
def test_translate_beside_a_recurrent_network_in_half_precision(verses, one_shape):
    options = one_shape | {"width": 4, "heads": 1, "state": 3, "lessons": 1, "epochs": 1}
    outcome = recipes.translate(job(), **options, pieces=300, precision="bfloat16")
    assert list(outcome.table) == ["dictionary", "recurrent network", "transformer"]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(outcome.model)} == {"float32"}


@pytest.mark.parametrize(
    ("recipe", "options", "says"),
    [
        ("gpt", {"epochs": 0}, "epochs must be more than 0"),
        ("gpt", {"books": ("cow",)}, "books: expected names of cat, dog; got 'cow'"),
        ("vit", {"heads": 0}, "heads must be more than 0"),
        ("translate", {"beam_width": 0}, "beam_width must be more than 0"),
        ("translate", {"warm": 0}, "warm must be more than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(books, recipe, options, says):
    with pytest.raises(ValueError, match=says):
        getattr(recipes, recipe)(job(), **options)
