"""The recipes with BERT on small data, and their parts against plain loops."""

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
from thetax.data import UNIVERSAL_TAGS, WordPiece
from thetax.models import BERT, SpanPredictor
from thetax.recipes import Job
from thetax.recipes.shared import fine_tuning
from thetax.recipes.shared import squad as questions
from thetax.train import Run, Silent, error_rate, load_pretrained, save_pretrained, token_error_rate

# a recipe and its file may have the same name
bert, sentiment, spans, tagging = (
    sys.modules[f"thetax.recipes.text.{n}"] for n in ("bert", "sentiment", "spans", "tagging")
)

TALE = [
    "Then he met Alice and Bill.",
    "The old king saw it.",
    "So he asked Alice to stay!",
    "All of them went off.",
]
SMALL = {
    "vocab_size": 90,
    "width": 8,
    "depth": 1,
    "heads": 1,
    "max_length": 24,
    "batch_size": 10,
}
TOKENISER = WordPiece.fit([" ".join(TALE)], vocab_size=90, score=data.pair_frequency)


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


def text_of(tokeniser, row) -> str:
    return tokeniser.decode(np.asarray(row))


@pytest.fixture
def small_data(monkeypatch, tmp_path):
    """Books that repeat one tale, short reviews, sentences in which a word has one tag, and a tiny
    MiniLM.
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
        BERT.init(len(TOKENISER), 8, depth=1, heads=1, max_length=24, key=jr.key(1)),
        tokeniser=TOKENISER,
    )
    monkeypatch.setattr(data, "fetch_model", lambda name, **where: folder)
    return folder


def test_segments_keep_all_tokens():
    rows = [np.arange(n) for n in (3, 2, 4, 11, 1)]
    found = bert.join_into_segments(rows, 5)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(rows))
    assert [len(row) for row in found] == [5, 4, 5, 5, 2]


def test_pairs_are_labelled_by_whether_they_are_consecutive():
    documents = [
        [TOKENISER.tokens(text) for text in TALE],
        [TOKENISER.tokens(text) for text in TALE[::-1]],
    ]
    flat = [text_of(TOKENISER, row) for row in chain.from_iterable(documents)]
    (tokens, segments), labels = bert.sentence_pair_batch(
        documents, TOKENISER, max_length=60, n_pairs=5, key=jr.key(0)
    )
    assert tokens.shape == segments.shape == (5, 60)
    after = {(a, b) for book in (flat[:4], flat[4:]) for a, b in pairwise(book)}
    for row, segment, label in zip(tokens, segments, labels):
        parts = data.unpack_sentences(
            row, cls_id=TOKENISER.piece_id("[CLS]"), sep_id=TOKENISER.piece_id("[SEP]")
        )
        assert (tuple(text_of(TOKENISER, part) for part in parts) in after) or label == 1
        assert parts[1] is not None
        assert (segment == 1).sum() == len(parts[1]) + 1
    assert 0 in labels
    assert 1 in labels


def test_the_stream_of_pairs():
    """Its number of batches, their length in each epoch, and the same pairs for the same key."""
    documents = [
        [TOKENISER.tokens(text, parse_special=False) for text in TALE * 3] for _ in range(2)
    ]
    init = partial(
        bert.PairStream, documents, TOKENISER, lengths=[24, 24, 40], n_pairs=9, batch_size=2
    )
    stream = init(key=jr.key(0))
    same = init(key=jr.key(0))
    batches = [list(stream(epoch)) for epoch in range(3)]
    assert sum(map(len, batches)) == stream.steps
    assert [{tokens.shape for (tokens, _), _ in own} for own in batches] == [
        {(2, 24)},
        {(2, 24)},
        {(2, 40)},
    ]
    np.testing.assert_array_equal(stream.pairs(1)[0][0], same.pairs(1)[0][0])
    assert (stream.pairs(0)[0][0] != stream.pairs(1)[0][0]).any()


def test_the_unigram_model_by_hand():
    train = [[np.array([0, 0, 1])]]
    test = [[np.array([0, 2])]]
    found = list(bert._unigram_row(train, test, 3).values())
    np.testing.assert_allclose(found, [1 / np.sqrt(3 / 6 * 1 / 6), 50, 50])


@pytest.mark.slow
def test_bert_and_an_encoder_from_its_run(small_data, tmp_path, check_reread):
    """The saved folder has the same model and vocabulary; a second call reads the run."""
    run = Run.begin(tmp_path / "r", recipe="bert", arguments={}, seed=0)
    options = SMALL | {
        "valid_books": ("b",),
        "test_books": ("c",),
        "pairs_per_epoch": 20,
        "epochs": 2,
    }
    call = partial(recipes.bert, job(run), **options)
    outcome = call()
    assert list(outcome.table) == ["unigram model", "network"]
    assert all(np.isfinite(list(row.values())).all() for row in outcome.table.values())
    assert len(outcome.history["train loss"]) == 2
    kept = load_pretrained(tmp_path / "r" / fine_tuning.PRETRAINED_FOLDER)
    assert kept.tokeniser.pieces == outcome.tokens
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), kept.model, outcome.model))
    check_reread(call, outcome)
    encoder = fine_tuning.load_encoder(
        str(tmp_path / "r"),
        [],
        config=fine_tuning.EncoderConfig(1, 1, 1, 1),
        max_length=24,
        key=jr.key(0),
    )
    np.testing.assert_array_equal(encoder.bert.embed.E, outcome.model.bert.embed.E)
    assert encoder.pool is not None
    np.testing.assert_array_equal(encoder.pool.W, outcome.model.pool.W)
    with pytest.raises(ValueError, match="positions for at most 24 tokens; got 25"):
        fine_tuning.load_encoder(
            str(tmp_path / "r"),
            [],
            config=fine_tuning.EncoderConfig(1, 1, 1, 1),
            max_length=25,
            key=jr.key(0),
        )


def test_bert_refuses_unknown_books(small_data):
    with pytest.raises(
        ValueError,
        match=r"valid_books, test_books: expected some, not all, of a, b, c, .*; got 'cow'",
    ):
        recipes.bert(job(), valid_books=("cow",))


def test_a_long_review_keeps_both_ends():
    known = WordPiece(["[UNK]", "[CLS]", "[SEP]", *"abcdefghij"])
    text = "a b c d e f g h i j"
    for length in range(3, 14):
        (row,) = sentiment.encode_reviews([text], known, max_length=length)
        room = length - 2
        head = min(round(room / 4), room)
        letters = text.split()
        part = letters if room >= 10 else letters[:head] + letters[10 - (room - head) :]
        pieces = ["[CLS]", *part, "[SEP]"]
        assert row.tolist() == [known.piece_id(piece) for piece in pieces] + [-1] * (
            length - len(pieces)
        )
    with pytest.raises(ValueError, match="max_length: must be at least 3; got 2"):
        sentiment.encode_reviews([text], known, max_length=2)


@pytest.mark.slow
def test_sentiment(small_data, tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="sentiment", arguments={}, seed=0)
    options = SMALL | {
        "max_length": 12,
        "scratch_learning_rate": 1e-2,
        "scratch_epochs": 12,
        "epochs": 1,
    }
    call = partial(recipes.sentiment, job(run), encoder=("minilm", "scratch"), **options)
    outcome = call()
    errors = {name: row["test error %"] for name, row in outcome.table.items()}
    assert list(errors) == ["bag of words", "encoder, minilm", "encoder, scratch"]
    assert errors["bag of words"] == 0
    assert errors["encoder, scratch"] < 20
    wrong = float(error_rate(outcome.model, jax.tree.map(jnp.asarray, outcome.test)))
    assert abs(errors["encoder, scratch"] - 100 * wrong) < 1e-3
    assert "<br" not in "".join(outcome.tokens)
    assert outcome.sizes == (180, 20)
    check_reread(call, outcome)


def test_tags_are_at_the_first_token_of_every_word():
    sentences = [
        (["unable", "he", "he", "unableable"], ["ADJ", "PRON", "PRON", "X"]),
        (["he"], ["PRON"]),
    ]
    known = WordPiece(["[UNK]", "[CLS]", "[SEP]", "un", "##able", "he"])
    xs, ys = tagging.encode_sentences(sentences, known, max_length=5)
    piece = dict(zip(("cls", "sep", "un", "able", "he"), range(1, 6)))
    assert [[list(piece)[i - 1] for i in row if i > 0] for row in xs] == [
        ["cls", "un", "able", "he", "sep"],
        ["cls", "he", "sep"],
        ["cls", "un", "able", "able", "sep"],
        ["cls", "he", "sep"],
    ]
    place = UNIVERSAL_TAGS.index
    assert ys.tolist() == [
        [-1, place("ADJ"), -1, place("PRON"), -1],
        [-1, place("PRON"), -1, -1, -1],
        [-1, place("X"), -1, -1, -1],
        [-1, place("PRON"), -1, -1, -1],
    ]


def test_whole_texts_are_held_out():
    """Two or three of 23 texts of a genre, and one of six; different ones for validation."""
    genre = np.repeat([0, 1], [23 * 2, 6 * 2])
    brown = data.Brown([], [], [], genre, np.arange(58) // 2, ("news", "humor"))
    test = tagging.held_out_mask(brown, 9)
    valid = tagging.held_out_mask(brown, 4)
    assert np.unique(brown.document[test]).tolist() == [9, 19, 26]
    assert np.unique(brown.document[valid]).tolist() == [4, 14, 27]


def test_the_most_frequent_tag_by_hand():
    train = [(["run", "run", "run", "The", "cat"], ["NOUN", "VERB", "VERB", "DET", "NOUN"])]
    test = [(["run", "run", "the", "dog"], ["VERB", "NOUN", "DET", "NOUN"])]
    # "the" is not in the training set, and one "run" is a noun
    assert tagging.most_frequent_tag_error(train, test) == 2 / 4


@pytest.mark.slow
def test_tagging(small_data):
    options = SMALL | {
        "max_length": 8,
        "scratch_learning_rate": 3e-2,
        "scratch_epochs": 6,
        "epochs": 1,
    }
    outcome = recipes.tagging(job(), encoder=("minilm", "scratch"), **options)
    errors = {name: row["test word error %"] for name, row in outcome.table.items()}
    assert list(errors) == [
        "most frequent tag of each word",
        "encoder, minilm",
        "encoder, scratch",
    ]
    assert errors["most frequent tag of each word"] == 0
    assert errors["encoder, scratch"] < 10
    wrong = float(token_error_rate(outcome.model, jax.tree.map(jnp.asarray, outcome.test)))
    assert abs(errors["encoder, scratch"] - 100 * wrong) < 1e-3


def test_a_question_hides_a_name_of_the_passage():
    found = list(questions.cloze_questions(TALE))
    assert [(q.text, q.answers) for q in found] == [("So he asked [MASK] to stay!", ("Alice",))]
    (question,) = found
    assert question.passage == " ".join(TALE[:2])
    assert question.passage[question.begin : question.end] == "Alice"
    assert not list(questions.cloze_questions(["He met Alice.", "So he asked Alice."]))
    assert questions.most_frequent_name(question) == "Alice"


def test_replaced_names():
    """Each name is replaced by the same new name everywhere; nothing else changes."""
    passage = "Then Lady Ann met Tom Brown and Tom fled. Yet Ann stayed."
    at = passage.index("Tom Brown")
    question = questions.Question("So Ann went after [MASK].", passage, at, at + 9, ("Tom Brown",))
    pool = ["Abel", "Babs", "Cleo", "Dora"]
    seen = set()
    for seed in range(20):
        other = questions.replace_names(question, pool, rng=np.random.default_rng(seed))
        (answer,) = other.answers
        assert other.passage[other.begin : other.end] == answer
        assert len(set(answer.split())) == 2
        ann, tom, brown = other.text.split()[1], *answer.split()
        back = {ann: "Ann", tom: "Tom", brown: "Brown"}
        assert set(back) < set(pool)
        for text, plain in ((other.passage, passage), (other.text, question.text)):
            for new, old in back.items():
                text = text.replace(new, old)
            assert text == plain
        seen.add(answer)
    assert len(seen) > 5


def test_scores_are_those_of_squad():
    question = questions.Question("", "", 0, 0, ("Denver Broncos", "The Broncos"))
    answers = {
        "the denver broncos!": (100, 100),
        "Broncos": (100, 100),
        "Denver": (0, 100 * 2 / 3),
        "Carolina": (0, 0),
    }
    for text, expected in answers.items():
        np.testing.assert_allclose(questions.squad_scores([text], [question]), expected)


def squad(entry: dict, articles: int = 1) -> dict:
    paragraph = {"context": "Bob ran. Then Alan sat.", "qas": [entry]}
    return {
        "version": "1.1",
        "data": [{"title": f"t{i}", "paragraphs": [paragraph]} for i in range(articles)],
    }


def entry(**more) -> dict:
    return {
        "id": "1",
        "question": "Who sat?",
        "answers": [{"text": "Alan", "answer_start": 14}],
    } | more


def test_reading_squad(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(squad(entry(), 10)))
    (question,) = questions.read_squad(path)["t3"]
    assert question == questions.Question("Who sat?", "Bob ran. Then Alan sat.", 14, 18, ("Alan",))
    assert [len(part) for part in spans._from_squad(str(path))] == [8, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as SQuAD 1.1"),
        ('{"data": 3}', "not readable as SQuAD 1.1"),
        ('{"data": []}', "contains no questions"),
        (
            json.dumps(squad(entry(answers=[]))),
            "'Who sat\\?' has no answer; give a SQuAD 1.1 file",
        ),
        (
            json.dumps(squad(entry(answers=[{"text": "Alan", "answer_start": 3}]))),
            "is not at character 3 of its passage",
        ),
        (
            json.dumps(squad(entry(answers=[{"text": "Alan", "answer_start": -7}]))),
            "is not at character -7 of its passage",
        ),
        (
            json.dumps(squad(entry())),
            "expected a file of at least 10 articles, since some are held out; got 1",
        ),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        spans._from_squad(str(path))


def test_the_size_of_a_file_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "big.json"
    path.write_text(json.dumps(squad(entry())))
    monkeypatch.setattr(questions, "MAX_JSON_NODES", 5)
    with pytest.raises(ValueError, match="has more than 5 lists and objects"):
        questions.read_squad(path)
    monkeypatch.setattr(questions, "MAX_FILE_BYTES", 20)
    with pytest.raises(ValueError, match="unpacks to more than the 20 bytes"):
        questions.read_squad(path)


class PredictsKing(SpanPredictor):
    """Predicts the token "king" of the passage."""

    def __call__(self, x, *, key=None):
        tokens, segments = x
        index = jnp.argmax((segments == 1) & (tokens == TOKENISER.piece_id("king")))
        return jnp.where(jnp.arange(len(tokens)) == index, 0.0, -1.0)[None] * jnp.ones((2, 1))


def test_targets_are_the_tokens_of_the_answer():
    """The tokens from the first to the last target spell the answer; a cut answer is left out."""
    passage = " ".join(TALE)
    examples = [
        questions.Question(
            "Who saw [MASK]?",
            passage,
            passage.index(name),
            passage.index(name) + len(name),
            (name,),
        )
        for name in ("Alice", "old king", "them")
    ]
    rows = spans.encode_questions(examples, TOKENISER, max_length=30)
    (tokens, segments), targets = rows.batch
    assert rows.answerable.tolist() == [True, True, False]
    for row, segment, (first, last), question in zip(tokens[:2], segments, targets, examples):
        assert text_of(TOKENISER, row[first : last + 1]) == question.answers[0].lower()
        assert set(segment[first : last + 1]) == {1}
        assert TOKENISER.piece_id("[MASK]") in row[segment == 0]
    model = SpanPredictor.init(
        BERT.init(len(TOKENISER), 4, depth=1, heads=1, max_length=30, key=jr.key(0)), key=jr.key(1)
    )
    king = PredictsKing(model.bert, model.head)
    assert spans.predict_answers(king, rows, examples, max_answer=3) == ["king"] * 3
    longest = max(last - first + 1 for first, last in targets[:2])
    assert spans.answer_length_limit(targets[:2]) == longest
    assert len(spans._answerable(rows)[1]) == 2


@pytest.mark.slow
def test_spans(small_data, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="spans", arguments={}, seed=0)
    options = SMALL | {
        "n_train": 40,
        "n_test": 10,
        "scratch_epochs": 2,
        "epochs": 1,
        "max_length": 40,
        "batch_size": 5,
    }
    path = tmp_path / "train.json"
    path.write_text(json.dumps(squad(entry(), 40)))
    outcome = recipes.spans(job(run), encoder=("scratch",), squad=str(path), **options)
    assert list(outcome.table) == ["most frequent name in the passage", "encoder, scratch"]
    assert outcome.table["most frequent name in the passage"]["exact match %"] == 100
    assert 0 <= outcome.table["encoder, scratch"]["exact match %"] <= 100


@pytest.mark.slow
def test_spans_of_books(small_data, monkeypatch):
    """Copies of the questions with other names; the vocabulary keeps capital letters."""
    monkeypatch.setattr(spans, "TEST_BOOKS", ("c",))
    monkeypatch.setattr(spans, "VALID_BOOKS", ("b",))
    encoded = []
    encode = spans.encode_questions
    monkeypatch.setattr(
        spans,
        "encode_questions",
        lambda part, *args, **options: encoded.append(part) or encode(part, *args, **options),
    )
    options = SMALL | {
        "encoder": ("scratch",),
        "vocab_size": 120,
        "max_length": 40,
        "batch_size": 5,
        "scratch_epochs": 1,
    }
    outcome = recipes.spans(job(), n_train=8, renamed_copies=2, n_test=6, **options)
    assert [len(encoded[i]) for i in (0, 2, 3)] == [24, 6, 6]
    assert {question.answers for question in encoded[0][8:]} != {("Alice",)}
    assert any(piece[0].isupper() for piece in outcome.tokens)


def test_a_negative_number_of_copies_is_refused():
    with pytest.raises(ValueError, match="renamed_copies: must be an integer >= 0; got -1"):
        recipes.spans(job(), renamed_copies=-1)


@pytest.mark.parametrize("name", ["sentiment", "tagging", "spans"])
@pytest.mark.parametrize(
    ("encoder", "message"), [((), "got none"), (("nowhere",), "expected 'scratch'.*got 'nowhere'")]
)
def test_an_unknown_encoder_is_refused(name, encoder, message):
    with pytest.raises(ValueError, match=message):
        getattr(recipes, name)(job(), encoder=encoder)


def test_a_missing_file_of_questions(tmp_path):
    with pytest.raises(ValueError, match="squad: there is no file"):
        questions.read_squad(tmp_path / "none.json")
