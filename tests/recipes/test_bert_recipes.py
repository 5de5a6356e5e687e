"""The recipes on BERT, on small data of the right form; and their parts, each against a plain
loop.
"""

import json
import sys
from functools import partial
from itertools import chain, pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.data import UNIVERSAL, WordPiece
from thetax.models import BERT, SpanPredictor
from thetax.recipes import Job
from thetax.recipes.shared import encoder
from thetax.recipes.shared import squad as questions
from thetax.train import Run, Silent, error_rate, load_pretrained, save_pretrained, token_error_rate

# a recipe and its file may have the same name
bert, sentiment, spans, tagging = (
    sys.modules[f"thetax.recipes.{n}"] for n in ("bert", "sentiment", "spans", "tagging")
)

TALE = [
    "Then he met Alice and Bill.",
    "The old king saw it.",
    "So he asked Alice to stay!",
    "All of them went off.",
]
SMALL = {"pieces": 90, "width": 8, "depth": 1, "heads": 1, "length": 24, "batch": 10}
KNOWN = WordPiece.fit([" ".join(TALE)], size=90, score=data.frequency)


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


def text_of(known, row) -> str:
    return known.decode(np.asarray(row))


@pytest.fixture
def little(monkeypatch, tmp_path):
    """Books of one tale in turn, reviews of a few words, sentences in which a word has one tag, and
    a tiny MiniLM.
    """
    rng = np.random.default_rng(0)
    tales = [" ".join(rng.permutation(TALE).tolist() * 12) for _ in range(4)]

    def reviews(n):
        ys = np.arange(n, dtype=np.int32) % 2
        texts = [
            f"{' '.join(rng.choice(['it', 'was', 'so'], 5))} {'great' if y else 'awful'}<br />it"
            for y in ys
        ]
        return np.array(texts, np.dtypes.StringDType()), ys

    names = np.array(["a", "b", "c", "carroll-alice"])
    sets = {
        "gutenberg": data.Data(
            (np.array(tales, np.dtypes.StringDType()), np.arange(4)), None, tuple(names), ()
        ),
        "imdb": data.Data(reviews(200), reviews(20), ("negative", "positive"), ()),
    }
    monkeypatch.setattr(data, "load", lambda name, **where: sets[name])
    tags = {"he": "PRON", "runs": "VERB", "a": "DET", "race": "NOUN"}
    lines = [list(rng.permutation(list(tags))) for _ in range(80)]
    brown = data.Brown(
        lines,
        [[]] * 80,
        [[tags[word] for word in line] for line in lines],
        np.zeros(80, np.int32),
        np.arange(80) // 4,
    )
    monkeypatch.setattr(data, "load_brown", lambda **where: brown)
    folder = tmp_path / "minilm"
    save_pretrained(
        folder,
        BERT.init(len(KNOWN), 8, depth=1, heads=1, max_length=24, key=jr.key(1)),
        tokeniser=KNOWN,
    )
    monkeypatch.setattr(data, "fetch_model", lambda name, **where: folder)
    return folder


def test_stretches_lose_no_token():
    rows = [np.arange(n) for n in (3, 2, 4, 11, 1)]
    found = bert.stretches(rows, 5)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(rows))
    assert [len(row) for row in found] == [5, 4, 5, 5, 2]


def test_pairs_follow_where_they_say_so():
    documents = [[KNOWN.tokens(text) for text in TALE], [KNOWN.tokens(text) for text in TALE[::-1]]]
    flat = [text_of(KNOWN, row) for row in chain.from_iterable(documents)]
    (tokens, segments), follows = bert.pairs(documents, KNOWN, length=60, count=5, key=jr.key(0))
    assert tokens.shape == segments.shape == (5, 60)
    after = {(a, b) for book in (flat[:4], flat[4:]) for a, b in pairwise(book)}
    for row, segment, label in zip(tokens, segments, follows):
        parts = data.part_sentences(row, cls=KNOWN.number("[CLS]"), sep=KNOWN.number("[SEP]"))
        assert (tuple(text_of(KNOWN, part) for part in parts) in after) or label == 1
        assert parts[1] is not None
        assert (segment == 1).sum() == len(parts[1]) + 1
    assert 0 in follows
    assert 1 in follows


def test_batches_of_pairs_are_as_many_as_is_said():
    """And of the length of their epoch, drawn anew in each, the same for the same key."""
    documents = [[KNOWN.tokens(text, special=False) for text in TALE * 3] for _ in range(2)]
    make = partial(bert.Drawn, documents, KNOWN, lengths=[24, 24, 40], count=9, batch=2)
    drawn = make(key=jr.key(0))
    again = make(key=jr.key(0))
    batches = [list(drawn(epoch)) for epoch in range(3)]
    assert sum(map(len, batches)) == drawn.steps
    assert [{tokens.shape for (tokens, _), _ in own} for own in batches] == [
        {(2, 24)},
        {(2, 24)},
        {(2, 40)},
    ]
    np.testing.assert_array_equal(drawn.pairs(1)[0][0], again.pairs(1)[0][0])
    assert (drawn.pairs(0)[0][0] != drawn.pairs(1)[0][0]).any()


def test_frequencies_by_hand():
    train = [[np.array([0, 0, 1])]]
    test = [[np.array([0, 2])]]
    found = list(bert._counted(train, test, 3).values())
    np.testing.assert_allclose(found, [1 / np.sqrt(3 / 6 * 1 / 6), 50, 50])


@pytest.mark.slow
def test_bert_and_a_task_that_starts_from_it(little, tmp_path):
    """The folder that is kept has the very model and its vocabulary, and a second call answers from
    the run.
    """
    run = Run.begin(tmp_path / "r", recipe="bert", arguments={}, seed=0)
    options = SMALL | {"valid": ("b",), "test": ("c",), "pairs_an_epoch": 20, "epochs": 2}
    call = partial(recipes.bert, job(run), **options)
    outcome = call()
    assert list(outcome.table) == ["frequencies, and a coin", "network"]
    assert all(np.isfinite(list(row.values())).all() for row in outcome.table.values())
    assert len(outcome.history["train loss"]) == 2
    kept = load_pretrained(tmp_path / "r" / encoder.KEPT)
    assert kept.tokeniser.pieces == outcome.tokens
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), kept.model, outcome.model))
    assert call().table == outcome.table
    begun = encoder.encoder(
        str(tmp_path / "r"), [], sizes=encoder.Sizes(1, 1, 1, 1), length=24, key=jr.key(0)
    )
    np.testing.assert_array_equal(begun.bert.embed.E, outcome.model.bert.embed.E)
    assert begun.pool is not None
    np.testing.assert_array_equal(begun.pool.W, outcome.model.pool.W)
    with pytest.raises(ValueError, match="reads at most 24 tokens; got 25"):
        encoder.encoder(
            str(tmp_path / "r"), [], sizes=encoder.Sizes(1, 1, 1, 1), length=25, key=jr.key(0)
        )


def test_bert_refuses_books_it_has_not(little):
    with pytest.raises(
        ValueError,
        match="valid, test: expected some, not all, of a, b, c, carroll-alice; got 'cow'",
    ):
        recipes.bert(job(), valid=("cow",))


def test_reviews_are_read_at_both_ends():
    known = WordPiece(["[UNK]", "[CLS]", "[SEP]", *"abcdefghij"])
    text = "a b c d e f g h i j"
    for length in range(3, 14):
        (row,) = sentiment.rows([text], known, length=length)
        room = length - 2
        head = min(round(room / 4), room)
        letters = text.split()
        kept = letters if room >= 10 else letters[:head] + letters[10 - (room - head) :]
        said = ["[CLS]", *kept, "[SEP]"]
        assert row.tolist() == [known.number(letter) for letter in said] + [-1] * (
            length - len(said)
        )
    with pytest.raises(ValueError, match="must be at least 3; got 2"):
        sentiment.rows([text], known, length=2)


@pytest.mark.slow
def test_sentiment(little, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="sentiment", arguments={}, seed=0)
    options = SMALL | {"length": 12, "fresh_rate": 1e-2, "fresh_epochs": 12, "epochs": 1}
    call = partial(recipes.sentiment, job(run), start=("minilm", "scratch"), **options)
    outcome = call()
    errors = {name: row["test error %"] for name, row in outcome.table.items()}
    assert list(errors) == ["bag of words", "encoder, minilm", "encoder, scratch"]
    assert errors["bag of words"] == 0
    assert errors["encoder, scratch"] < 20
    wrong = float(error_rate(outcome.model, jax.tree.map(jnp.asarray, outcome.test)))
    assert abs(errors["encoder, scratch"] - 100 * wrong) < 1e-3
    assert "<br" not in "".join(outcome.tokens)
    assert outcome.sizes == (180, 20)
    assert call().table == outcome.table


def test_tags_stand_at_the_first_piece_of_every_word():
    sentences = [
        (["unable", "he", "he", "unableable"], ["ADJ", "PRON", "PRON", "X"]),
        (["he"], ["PRON"]),
    ]
    known = WordPiece(["[UNK]", "[CLS]", "[SEP]", "un", "##able", "he"])
    xs, ys = tagging.rows(sentences, known, length=5)
    piece = dict(zip(("cls", "sep", "un", "able", "he"), range(1, 6)))
    assert [[list(piece)[i - 1] for i in row if i > 0] for row in xs] == [
        ["cls", "un", "able", "he", "sep"],
        ["cls", "he", "sep"],
        ["cls", "un", "able", "able", "sep"],
        ["cls", "he", "sep"],
    ]
    place = UNIVERSAL.index
    assert ys.tolist() == [
        [-1, place("ADJ"), -1, place("PRON"), -1],
        [-1, place("PRON"), -1, -1, -1],
        [-1, place("X"), -1, -1, -1],
        [-1, place("PRON"), -1, -1, -1],
    ]


def test_whole_texts_are_held_out():
    """Of 23 texts of a genre two or three, of six one; never the same for validation."""
    genre = np.repeat([0, 1], [23 * 2, 6 * 2])
    brown = data.Brown([], [], [], genre, np.arange(58) // 2, ("news", "humor"))
    test = tagging.held_out(brown, 9)
    valid = tagging.held_out(brown, 4)
    assert np.unique(brown.document[test]).tolist() == [9, 19, 26]
    assert np.unique(brown.document[valid]).tolist() == [4, 14, 27]


def test_the_commonest_tag_by_hand():
    train = [(["run", "run", "run", "The", "cat"], ["NOUN", "VERB", "VERB", "DET", "NOUN"])]
    test = [(["run", "run", "the", "dog"], ["VERB", "NOUN", "DET", "NOUN"])]
    assert tagging.commonest_tag(train, test) == 2 / 4  # "the" was not met, and one "run" is a noun


@pytest.mark.slow
def test_tagging(little):
    options = SMALL | {"length": 8, "fresh_rate": 3e-2, "fresh_epochs": 6, "epochs": 1}
    outcome = recipes.tagging(job(), start=("minilm", "scratch"), **options)
    errors = {name: row["words tagged wrongly, %"] for name, row in outcome.table.items()}
    assert list(errors) == ["the commonest tag of each word", "encoder, minilm", "encoder, scratch"]
    assert errors["the commonest tag of each word"] == 0
    assert errors["encoder, scratch"] < 10
    wrong = float(token_error_rate(outcome.model, jax.tree.map(jnp.asarray, outcome.test)))
    assert abs(errors["encoder, scratch"] - 100 * wrong) < 1e-3


def test_a_question_hides_a_name_that_was_told_before():
    found = list(questions.cut_questions(TALE))
    assert [(q.asks, q.answers) for q in found] == [("So he asked [MASK] to stay!", ("Alice",))]
    (question,) = found
    assert question.passage == " ".join(TALE[:2])
    assert question.passage[question.begin : question.end] == "Alice"
    assert not list(
        questions.cut_questions(["He met Alice.", "So he asked Alice."])
    )  # there is nobody else
    assert questions.commonest_name(question) == "Alice"


def test_a_question_about_others_is_the_same_question():
    """Word for word the same but for the names, and each name another one wherever it stands."""
    told = "Then Lady Ann met Tom Brown and Tom fled. Yet Ann stayed."
    at = told.index("Tom Brown")
    question = questions.Question("So Ann went after [MASK].", told, at, at + 9, ("Tom Brown",))
    pool = ["Abel", "Babs", "Cleo", "Dora"]
    seen = set()
    for seed in range(20):
        other = questions.renamed(question, pool, draw=np.random.default_rng(seed))
        (answer,) = other.answers
        assert other.passage[other.begin : other.end] == answer
        assert len(set(answer.split())) == 2
        ann, tom, brown = other.asks.split()[1], *answer.split()
        back = {ann: "Ann", tom: "Tom", brown: "Brown"}
        assert set(back) < set(pool)
        for text, plain in ((other.passage, told), (other.asks, question.asks)):
            for new, old in back.items():
                text = text.replace(new, old)
            assert text == plain
        seen.add(answer)
    assert len(seen) > 5


def test_marks_are_those_of_squad():
    question = questions.Question("", "", 0, 0, ("Denver Broncos", "The Broncos"))
    said = {
        "the denver broncos!": (100, 100),
        "Broncos": (100, 100),
        "Denver": (0, 100 * 2 / 3),
        "Carolina": (0, 0),
    }
    for text, expected in said.items():
        np.testing.assert_allclose(questions.mark([text], [question]), expected)


def squad(asked: dict, articles: int = 1) -> dict:
    paragraph = {"context": "Bob ran. Then Alan sat.", "qas": [asked]}
    return {
        "version": "1.1",
        "data": [{"title": f"t{i}", "paragraphs": [paragraph]} for i in range(articles)],
    }


def asked(**more) -> dict:
    return {
        "id": "1",
        "question": "Who sat?",
        "answers": [{"text": "Alan", "answer_start": 14}],
    } | more


def test_squad_is_read(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(squad(asked(), 10)))
    (question,) = questions.read_squad(path)["t3"]
    assert question == questions.Question("Who sat?", "Bob ran. Then Alan sat.", 14, 18, ("Alan",))
    assert [len(part) for part in spans._from_squad(str(path))] == [8, 1, 1]


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("{", "not readable as SQuAD 1.1"),
        ('{"data": 3}', "not readable as SQuAD 1.1"),
        ('{"data": []}', "has no question in it"),
        (
            json.dumps(squad(asked(answers=[]))),
            "'Who sat\\?' has no answer; give a file of SQuAD 1.1",
        ),
        (
            json.dumps(squad(asked(answers=[{"text": "Alan", "answer_start": 3}]))),
            "does not stand at 3 of its passage",
        ),
        (
            json.dumps(squad(asked(answers=[{"text": "Alan", "answer_start": -7}]))),
            "does not stand at -7 of its passage",
        ),
        (
            json.dumps(squad(asked())),
            "expected a file of at least 10 articles, to hold some out; got 1",
        ),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, trouble):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=trouble):
        spans._from_squad(str(path))


def test_a_file_is_read_within_bounds(tmp_path, monkeypatch):
    path = tmp_path / "big.json"
    path.write_text(json.dumps(squad(asked())))
    monkeypatch.setattr(questions, "BRACKETS", 5)
    with pytest.raises(ValueError, match="has more than 5 lists and objects"):
        questions.read_squad(path)
    monkeypatch.setattr(questions, "LIMIT", 20)
    with pytest.raises(ValueError, match="unpacks to more than the 20 bytes"):
        questions.read_squad(path)


class Sure(SpanPredictor):
    """Points where it is told to, by the numbers of the tokens."""

    def __call__(self, x, *, key=None):
        tokens, segments = x
        place = jnp.argmax(jnp.where((segments == 1) & (tokens == KNOWN.number("king")), 1, 0))
        return jnp.where(jnp.arange(len(tokens)) == place, 0.0, -1.0)[None] * jnp.ones((2, 1))


def test_an_answer_is_where_its_tokens_are():
    """In every row the tokens from the first to the last target spell the answer; what is cut off
    is not asked for.
    """
    passage = " ".join(TALE)
    made = [
        questions.Question(
            "Who saw [MASK]?",
            passage,
            passage.index(name),
            passage.index(name) + len(name),
            (name,),
        )
        for name in ("Alice", "old king", "them")
    ]
    read = spans.rows(made, KNOWN, length=30)
    (tokens, segments), targets = read.batch
    assert read.inside.tolist() == [True, True, False]
    for row, segment, (first, last), question in zip(tokens[:2], segments, targets, made):
        assert text_of(KNOWN, row[first : last + 1]) == question.answers[0].lower()
        assert set(segment[first : last + 1]) == {1}
        assert KNOWN.number("[MASK]") in row[segment == 0]
    model = SpanPredictor.init(
        BERT.init(len(KNOWN), 4, depth=1, heads=1, max_length=30, key=jr.key(0)), key=jr.key(1)
    )
    assert spans.answers(Sure(model.bert, model.head), read, made, longest=3) == ["king"] * 3
    assert spans.usual_length(targets[:2]) == max(last - first + 1 for first, last in targets[:2])
    assert len(spans._answered(read)[1]) == 2


@pytest.mark.slow
def test_spans(little, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="spans", arguments={}, seed=0)
    monkeyed = (
        {"questions": 40, "tests": 10, "fresh_epochs": 2, "epochs": 1}
        | SMALL
        | {"length": 40, "batch": 5}
    )
    path = tmp_path / "train.json"
    path.write_text(json.dumps(squad(asked(), 40)))
    outcome = recipes.spans(job(run), start=("scratch",), squad=str(path), **monkeyed)
    assert list(outcome.table) == ["the commonest name of the passage", "encoder, scratch"]
    assert outcome.table["the commonest name of the passage"]["exactly right, %"] == 100
    assert 0 <= outcome.table["encoder, scratch"]["exactly right, %"] <= 100


@pytest.mark.slow
def test_spans_of_books(little, monkeypatch):
    """Each question comes so many times more, and the pieces keep the capitals of names."""
    monkeypatch.setattr(spans, "TEST_BOOKS", ("c",))
    monkeypatch.setattr(spans, "VALID_BOOKS", ("b",))
    told = []
    read = spans.rows
    monkeypatch.setattr(
        spans,
        "rows",
        lambda part, *known, **options: told.append(part) or read(part, *known, **options),
    )
    options = SMALL | {"pieces": 120, "length": 40, "batch": 5, "fresh_epochs": 1}
    outcome = recipes.spans(job(), start=("scratch",), questions=8, renames=2, tests=6, **options)
    assert [len(told[i]) for i in (0, 2, 3)] == [24, 6, 6]
    assert {question.answers for question in told[0][8:]} != {("Alice",)}
    assert any(piece[0].isupper() for piece in outcome.tokens)


def test_names_are_not_changed_less_than_never():
    with pytest.raises(
        ValueError, match="renames counts how often names are changed, 0 or more; got -1"
    ):
        recipes.spans(job(), renames=-1)


@pytest.mark.parametrize("name", ["sentiment", "tagging", "spans"])
@pytest.mark.parametrize(
    ("start", "trouble"), [((), "got none"), (("nowhere",), "expected 'scratch'.*got 'nowhere'")]
)
def test_a_start_that_is_not_there_is_refused(name, start, trouble):
    with pytest.raises(ValueError, match=trouble):
        getattr(recipes, name)(job(), start=start)


def test_a_file_of_questions_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="squad: there is no file"):
        questions.read_squad(tmp_path / "none.json")
