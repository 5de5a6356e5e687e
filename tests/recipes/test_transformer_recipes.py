"""The recipes for transformers on small data, and their parts against plain loops."""

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
from thetax.recipes.shared import ibm_model_1 as ibm_model_1
from thetax.recipes.shared import transformer_training as training
from thetax.recipes.text.gpt import BitsPerCharacter, overlapping_windows
from thetax.recipes.text.translate import (
    BEGIN,
    END,
    TEST_BOOKS,
    VALID_BOOKS,
    encode_pairs,
    split_by_book,
    translate_texts,
)
from thetax.report.lenses.text import is_language_model, translates
from thetax.train import Run, Silent, log_loss, token_cross_entropy

gpt = import_module("thetax.recipes.text.gpt")
vit = import_module("thetax.recipes.images.vit")

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
        xs, ys = overlapping_windows(texts, length)
        assert xs.shape == ys.shape == (len(xs), length)
        targets = ys[ys >= 0]
        assert len(set(targets.tolist())) == len(targets)
        np.testing.assert_array_equal(targets, (xs + 1)[ys >= 0])
        for first in (0, 100):
            of_text = np.sort(targets[(targets >= first) & (targets < first + 100)])
            np.testing.assert_array_equal(of_text, np.arange(first + 1, first + 1 + len(of_text)))
    half = [(row >= 0).argmax() for row in overlapping_windows(texts[:1], 4)[1]]
    assert half == [0] + [2] * (len(half) - 1)  # all but the first have half a window before them
    with pytest.raises(ValueError, match="no validation or test text has more than 30 tokens"):
        overlapping_windows(texts, 30)


@pytest.mark.slow
def test_only_matrices_decay():
    model = GPT.init(7, 8, depth=3, heads=2, max_length=4, key=jr.key(0))
    mask = training.matrix_mask(model)
    assert mask.embed.E
    assert mask.positions.P
    block = model.trunk.blocks.layers
    block_mask = mask.trunk.blocks.layers
    for name in ("Q", "K", "V", "O"):
        assert getattr(block_mask.attention, name).W
        assert not getattr(block_mask.attention, name).b
        assert getattr(block.attention, name).b.ndim == 2  # stacked biases look like a matrix
    size = lambda flags: sum(
        leaf.size for leaf, flag in zip(jax.tree.leaves(model), jax.tree.leaves(flags)) if flag
    )
    assert size(mask) == 7 * 8 + 4 * 8 + 3 * (4 * 8 * 8 + 2 * 8 * 32)
    step = training.adamw_on_matrices(lambda count: 0.1, weight_decay=0.5)
    zero = jax.tree.map(jnp.zeros_like, model)
    update, _ = step.update(zero, step.init(model), model)  # pyright: ignore[reportArgumentType]
    for flag, change, leaf in zip(*map(jax.tree.leaves, (mask, update, model))):
        np.testing.assert_allclose(change, (-0.05 if flag else 0.0) * leaf, atol=1e-7)


def test_learning_rate_schedules():
    root = training.inverse_sqrt_schedule(2.0, warmup_steps=10)
    np.testing.assert_allclose(
        np.stack([np.asarray(root(n)) for n in (0, 4, 9, 39)]), [0.2, 1.0, 2.0, 1.0], rtol=1e-6
    )
    cosine = training.warmup_cosine(2.0, 100, warmup=0.2)
    np.testing.assert_allclose(
        np.stack([np.asarray(cosine(n)) for n in (0, 10, 20, 60, 100)]), [0, 1, 2, 1, 0], atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_the_smoothed_loss_is_that_of_the_smoothed_label(strength):
    logits = jr.normal(jr.key(0), (5,))
    label = (1 - strength) * jnp.eye(5)[2] + strength / 5
    np.testing.assert_allclose(
        training.label_smoothed_log_loss(strength)(logits, jnp.array(2)),
        log_loss(logits, label),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match=r"strength must lie in \[0, 1\); got 1"):
        training.label_smoothed_log_loss(1.0)


@pytest.mark.slow
def test_the_token_loss_in_blocks(monkeypatch):
    """A row has the weight of its number of targets."""
    monkeypatch.setattr(training, "EVALUATION_BLOCK", 2)
    model = GPT.init(5, 4, depth=1, heads=1, max_length=6, key=jr.key(0))
    xs = jr.randint(jr.key(1), (5, 6), 0, 5)
    ys = jnp.where(jnp.arange(6)[None] < jnp.array([6, 1, 0, 3, 6])[:, None], xs, -1)
    np.testing.assert_allclose(
        training.blockwise_token_cross_entropy(model, (xs, ys)),
        token_cross_entropy(model, (xs, ys)),
        rtol=1e-5,
    )
    uniform = GPT(
        model.embed, model.trunk, model.positions, jax.tree.map(jnp.zeros_like, _readout())
    )
    np.testing.assert_allclose(
        BitsPerCharacter(2.0)(uniform, (xs, ys)), math.log2(5) / 2, rtol=1e-5
    )


def _readout():
    return GPT.init(5, 4, depth=1, heads=1, max_length=6, tied=False, key=jr.key(0)).readout


@pytest.fixture
def books(monkeypatch):
    texts = np.array(["the cat sat. " * 300, "a dog ran off! " * 200], np.dtypes.StringDType())
    full = data.Data((texts, np.arange(2, dtype=np.int32)), None, ("cat", "dog"), ())
    monkeypatch.setattr(data, "load", lambda name, **where: full)
    return texts.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("vocab_size", "row"), [(280, "GPT, byte pairs"), (0, "GPT, characters")])
def test_gpt(books, tmp_path, monkeypatch, vocab_size, row, check_reread):
    monkeypatch.setattr(gpt, "EVALUATION_LENGTH", 100)
    run = Run.begin(tmp_path / "r", recipe="gpt", arguments={}, seed=0)
    options = {
        "books": ("cat", "dog"),
        "vocab_size": vocab_size,
        "width": 16,
        "depth": 1,
        "heads": 2,
        "max_length": 8,
        "max_order": 1,
    }
    call = partial(recipes.gpt, job(run), **options, learning_rate=1e-2, epochs=3, batch_size=20)
    outcome = call()
    table = {name: values["test bits per character"] for name, values in outcome.table.items()}
    assert list(table) == ["uniform", "best n-gram, order 1", row]
    assert table[row] < table["best n-gram, order 1"] < table["uniform"]
    assert is_language_model(outcome)
    text = "".join(book[round(0.9 * len(book)) :] for book in books)
    xs, ys = outcome.test
    log_p = np.asarray(jax.nn.log_softmax(predict(outcome.model, jnp.asarray(xs))))
    losses = -np.take_along_axis(log_p, np.maximum(ys, 0)[..., None], axis=2)[..., 0][ys >= 0]
    n_characters = sum(len(outcome.tokens[token]) for token in ys[ys >= 0])
    assert 0.9 * len(text) < n_characters < len(text)
    np.testing.assert_allclose(table[row], losses.sum() / math.log(2) / n_characters, rtol=0.05)
    check_reread(call, outcome)


@pytest.mark.slow
def test_vit(monkeypatch, tmp_path, check_reread):
    rng = np.random.default_rng(0)
    ys = np.arange(480, dtype=np.int32) % 10
    xs = rng.random((10, 8, 8), np.float32)[ys] + 0.1 * rng.random(
        (480, 8, 8), np.float32
    )  # ten images, with noise
    full = data.Data((xs, ys), (xs[:100], ys[:100]), tuple("0123456789"), ())
    monkeypatch.setattr(data, "load", lambda name, **where: full)
    monkeypatch.setattr(vit, "CNN_WIDTHS", (4,))
    run = Run.begin(tmp_path / "r", recipe="vit", arguments={}, seed=0)
    options = {
        "data": "mnist",
        "patch_size": 2,
        "width": 16,
        "depth": 1,
        "heads": 2,
        "dropout": 0.0,
        "max_shift": 0,
    }
    call = partial(
        recipes.vit,
        job(run),
        **options,
        learning_rate=5e-3,
        epochs=12,
        baseline_epochs=1,
        batch_size=20,
    )
    outcome = call()
    assert list(outcome.table) == ["MLP", "CNN", "vision transformer"]
    assert outcome.table["vision transformer"]["test error %"] < 20
    assert outcome.table["CNN"]["epochs"] == 1
    assert outcome.model(jnp.asarray(outcome.test[0][0])).shape == (10,)
    check_reread(call, outcome)


@pytest.fixture
def no_data(monkeypatch):
    def refuse(*args, **where):
        raise AssertionError("data were loaded in spite of a bad option")

    monkeypatch.setattr(data, "load", refuse)
    monkeypatch.setattr(data, "load_verses", refuse)


@pytest.mark.parametrize("patch_size", [5, 0, -7])
def test_vit_refuses_patches_that_do_not_tile_the_image(no_data, patch_size):
    with pytest.raises(
        ValueError, match=f"patch_size: patches must tile an image of 28 by 28: .* got {patch_size}"
    ):
        recipes.vit(job(), patch_size=patch_size)


def test_translate_raises_before_it_loads_data(no_data, monkeypatch):
    with pytest.raises(ValueError, match=r"vocab_size must be at least 258, .*; got 0"):
        recipes.translate(job(), vocab_size=0)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(ImportError, match=r"bleu requires sacrebleu: pip install 'thetax\[text\]'"):
        recipes.translate(job())


ENGLISH = ["the house is small", "the book is old", "a house", "a small book is a book"]
GERMAN = ["das Haus ist klein", "das Buch ist alt", "ein Haus", "ein kleines Buch ist ein Buch"]


def em_in_loops(iterations: int) -> tuple[dict[tuple[str, str], float], list[float]]:
    """IBM model 1 in loops over words."""
    rows = [(("", *one.split()), other.split()) for one, other in zip(ENGLISH, GERMAN)]
    words = {g for _, other in rows for g in other}
    t = defaultdict(lambda: 1 / len(words))
    log_likelihoods = []
    for _ in range(iterations):
        count = defaultdict(float)
        total = defaultdict(float)
        log_p = []
        for one, other in rows:
            for g in other:
                total_p = sum(t[g, e] for e in one)
                log_p.append(math.log(total_p / len(one)))
                for e in one:
                    count[g, e] += t[g, e] / total_p
                    total[e] += t[g, e] / total_p
        t = {(g, e): c / total[e] for (g, e), c in count.items()}
        log_likelihoods.append(float(np.mean(log_p)))
    return t, log_likelihoods


@pytest.mark.parametrize("iterations", [1, 6])
def test_ibm_model_1_agrees_with_loops(iterations):
    model = ibm_model_1.IBMModel1.fit(ENGLISH, GERMAN, iterations=iterations)
    t, log_likelihoods = em_in_loops(iterations)
    np.testing.assert_allclose(model.log_likelihoods, log_likelihoods, rtol=1e-12)
    assert set(model.translations) == {e for _, e in t}
    for e, g in model.translations.items():
        best = max(p for (_, other), p in t.items() if other == e)
        np.testing.assert_allclose([model.probabilities[e], t[g, e]], [best, best], rtol=1e-12)


def test_ibm_model_1_translates_and_keeps_unknown_words():
    model = ibm_model_1.IBMModel1.fit(ENGLISH, GERMAN, iterations=30)
    assert (np.diff(model.log_likelihoods) > 0).all()
    assert model.translate("a house, Orpah; the old book!") == "ein Haus, Orpah; das alt Buch!"
    with pytest.raises(ValueError, match="text 1 has no words"):
        ibm_model_1.IBMModel1.fit(["a", "?!"], ["ein", "was"])
    with pytest.raises(ValueError, match="a target for each source; got 1 targets for 2"):
        ibm_model_1.IBMModel1.fit(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="iterations must be an integer >= 1; got 0"):
        ibm_model_1.IBMModel1.fit(["a"], ["c"], iterations=0)


@pytest.fixture
def verses(monkeypatch):
    """Sentences of a subject, a verb and an object; a few of them in the held-out books."""
    rng = np.random.default_rng(0)
    rows = [(*rng.choice(list(NOUNS), 2), rng.choice(list(VERBS))) for _ in range(300)]
    english = np.array([f"The {a} {v} the {b}." for a, b, v in rows], np.dtypes.StringDType())
    german = [f"{NOUNS[a]} {VERBS[v]} {NOUNS[b]}." for a, b, v in rows]
    books = [
        data.Verses._field_defaults["books"].index(name)
        for name in (VALID_BOOKS[0], TEST_BOOKS[0], "Genesis")
    ]
    book = np.array(books, np.int32)[[0] * 10 + [1] * 10 + [2] * 280]
    same = np.arange(300) != 299
    verses = data.Verses(english, np.array(german, np.dtypes.StringDType()), book, book, book, same)
    monkeypatch.setattr(data, "load_verses", lambda **where: verses)
    return verses


def test_encoded_pairs(verses):
    tokeniser = data.BytePairEncoding.fit(
        [*verses.english, *verses.german], vocab_size=300, special_tokens=(BEGIN, END)
    )
    (sources, inputs), targets = encode_pairs(verses.select(np.arange(5)), tokeniser, 40)
    assert [tokeniser.decode(row) for row in sources] == verses.english[:5].tolist()
    assert [tokeniser.decode(row) for row in targets] == [
        f"{text}{END}" for text in verses.german[:5].tolist()
    ]
    np.testing.assert_array_equal(
        inputs[:, 1:], np.where(targets == tokeniser.piece_id(END), -1, targets)[:, :-1]
    )
    assert (inputs[:, 0] == tokeniser.piece_id(BEGIN)).all()
    lengths = np.maximum((sources >= 0).sum(axis=1), (targets >= 0).sum(axis=1))
    (short, _), _ = encode_pairs(
        verses.select(np.arange(5)), tokeniser, int(lengths.min()), drop_long=True
    )
    assert len(short) == (lengths == lengths.min()).sum()
    (cut_sources, _), cut_targets = encode_pairs(verses.select(np.arange(5)), tokeniser, 4)
    assert cut_sources.shape == cut_targets.shape == (5, 4)
    np.testing.assert_array_equal(cut_sources, sources[:, :4])


def test_every_book_is_in_one_split():
    books = np.arange(66)
    verses = data.Verses(books, books, books, books, books, books == books)
    splits = [set(split.book.tolist()) for split in split_by_book(verses)]
    assert set.union(*splits) == set(range(66))
    assert sum(map(len, splits)) == 66
    assert [verses.books[i] for i in sorted(splits[2])] == list(TEST_BOOKS)
    assert len(splits[1]) == len(VALID_BOOKS)


@pytest.mark.slow
def test_translations_are_those_of_greedy_and_beam_search(verses):
    tokeniser = data.BytePairEncoding.fit(
        [*verses.english, *verses.german], vocab_size=270, special_tokens=(BEGIN, END)
    )
    (sources, _), _ = encode_pairs(verses.select(np.arange(2)), tokeniser, 6)
    model = Translator.init(None, len(tokeniser), 8, depth=1, heads=2, key=jr.key(0))
    begin = tokeniser.piece_id(BEGIN)
    end = tokeniser.piece_id(END)
    for width, penalty in ((1, 0.0), (3, 1.0)):
        rows = []
        for source in jnp.asarray(sources):
            cell, state = model.decoder(source, max_length=5)
            settings = {
                "start_token": begin,
                "end_token": end,
                "max_new_tokens": 5,
                "state": state,
            }
            rows.append(
                greedy(cell, **settings).tokens
                if width == 1
                else beam_search(cell, beam_width=width, length_penalty=penalty, **settings).tokens[
                    0
                ]
            )
        texts = translate_texts(
            model, sources, tokeniser, max_length=5, beam_width=width, length_penalty=penalty
        )
        assert texts == [
            tokeniser.decode([t for t in np.asarray(row) if t not in (-1, end)]) for row in rows
        ]


@pytest.fixture
def one_shape(monkeypatch):
    """Batches of one shape, so that each network is compiled once: 279 verses are 9 batches."""
    monkeypatch.setattr(import_module("thetax.recipes.text.translate"), "N_LENGTH_BUCKETS", 1)
    return {
        "width": 16,
        "depth": 1,
        "heads": 2,
        "max_length": 24,
        "dropout": 0.0,
        "beam_width": 2,
        "warmup_steps": 10,
        "batch_size": 31,
    }


@pytest.mark.slow
def test_translate(verses, one_shape, tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="translate", arguments={}, seed=0)
    call = partial(
        recipes.translate,
        job(run),
        **one_shape,
        vocab_size=300,
        learning_rate=1e-2,
        epochs=6,
        baseline_epochs=0,
    )
    outcome = call()
    assert list(outcome.table) == ["dictionary", "transformer"]
    assert set(outcome.table["transformer"]) == {"test BLEU", "test BLEU, beam 2", "valid loss"}
    assert outcome.history["valid loss"][-1] < outcome.history["valid loss"][0] / 2
    assert len(outcome.train[1]) == 279
    assert len(outcome.test[1]) == 10
    assert translates(outcome)
    assert outcome.tokens[:2] == (BEGIN, END)
    check_reread(call, outcome)


@pytest.mark.slow
def test_translate_beside_a_recurrent_network_in_half_precision(verses, one_shape):
    options = one_shape | {
        "width": 4,
        "heads": 1,
        "baseline_width": 3,
        "baseline_epochs": 1,
        "epochs": 1,
    }
    outcome = recipes.translate(job(), **options, vocab_size=300, precision="bfloat16")
    assert list(outcome.table) == ["dictionary", "recurrent network", "transformer"]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(outcome.model)} == {"float32"}


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("gpt", {"epochs": 0}, "epochs must be more than 0"),
        ("gpt", {"books": ("cow",)}, "books: expected names of cat, dog; got 'cow'"),
        ("vit", {"heads": 0}, "heads must be more than 0"),
        ("translate", {"beam_width": 0}, "beam_width must be more than 0"),
        ("translate", {"warmup_steps": 0}, "warmup_steps must be more than 0"),
    ],
)
def test_bad_options_are_refused(books, recipe, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(recipes, recipe)(job(), **options)
