"""Questions whose answer is a span of a passage (§6.5): made from a text, or read from a SQuAD 1.1
file.

A question from a text is a sentence in which a name is masked. The passage is the text before the
sentence, which contains this name and at least one other.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data.io.bounded_read import contents, reading

MASK = "[MASK]"  # replaces the hidden name
MAX_FILE_BYTES = 96 << 20
MAX_JSON_NODES = 4_000_000  # lists and objects in a file
PASSAGE_WORDS = 80  # approximate length of a passage
MAX_QUESTION_WORDS = 40
_WORD = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(
    r"(?<=[a-z,;] )[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*|(?<=Mr\. )[A-Z][a-z]+|(?<=Mrs\. )[A-Z][a-z]+"
)
_CAPITAL = re.compile(r"\b[A-Z][a-z]+\b")
_ARTICLE = re.compile(r"\b(a|an|the)\b")
TITLES = {
    "Aunt",
    "Captain",
    "Colonel",
    "Doctor",
    "Father",
    "King",
    "Lady",
    "Lord",
    "Miss",
    "Mother",
    "Mr",
    "Mrs",
    "Prince",
    "Queen",
    "Sir",
    "Uncle",
}


class Question(NamedTuple):
    """A question, its passage, the answer `passage[begin:end]`, and all correct answers."""

    text: str
    passage: str
    begin: int
    end: int
    answers: tuple[str, ...]


def word_spans(text: str) -> list[tuple[int, int]]:
    """The start and end of each word or punctuation character.

    >>> word_spans("Who, I?")
    [(0, 3), (3, 4), (5, 6), (6, 7)]
    """
    return [word.span() for word in _WORD.finditer(text)]


def find_names(text: str) -> list[str]:
    """The names in a text: capitalised words that do not begin a sentence.

    >>> find_names("Then came Alice, and Bill Lizard was with Alice.")
    ['Alice', 'Bill Lizard', 'Alice']
    """
    return _NAME.findall(text)


def cloze_questions(sentences: Sequence[str]) -> Iterator[Question]:
    """A question from each sentence that contains a name of the preceding passage.

    >>> sentences = [
    ...     "Then he met Alice and Bill.",
    ...     "Nobody else was there.",
    ...     "So he asked Alice to stay.",
    ... ]
    >>> question = next(cloze_questions(sentences))
    >>> question.text, question.answers, question.passage[question.begin : question.end]
    ('So he asked [MASK] to stay.', ('Alice',), 'Alice')
    """
    for i, sentence in enumerate(sentences):
        if len(sentence.split()) > MAX_QUESTION_WORDS:
            continue
        passage = _passage(sentences, i)
        names = set(find_names(passage))
        for name in find_names(sentence):
            answer = re.search(rf"\b{re.escape(name)}\b", passage)
            if answer and names - {name} and sentence.count(name) == 1:
                yield Question(sentence.replace(name, MASK), passage, *answer.span(), (name,))
                break


def _passage(sentences: Sequence[str], i: int) -> str:
    """The text before sentence `i`: about `PASSAGE_WORDS` words, and at least one sentence."""
    passage = []
    n_words = 0
    for sentence in reversed(sentences[max(0, i - PASSAGE_WORDS) : i]):
        n_words += len(sentence.split())
        if passage and n_words > PASSAGE_WORDS:
            break
        passage.append(sentence)
    return " ".join(" ".join(reversed(passage)).split()[-2 * PASSAGE_WORDS :])


def name_words(texts: Iterable[str]) -> list[str]:
    """The distinct words of all names in some texts, without titles.

    >>> name_words(["Then came Lady Ann Bell, and Ann was with Bo."])
    ['Ann', 'Bell']
    """
    return sorted(
        {word for text in texts for name in find_names(text) for word in name.split()} - TITLES
    )


def replace_names(question: Question, pool: Sequence[str], *, rng: np.random.Generator) -> Question:
    """Replaces each word of a name, everywhere in the question, by a random word of the pool.

    A model cannot learn the characters of a book from such questions; it must use the passage.
    (Hermann et al. 2015 replace names by numbers.)

    >>> question = Question("So he asked [MASK].", "He met Lady Ann.", 7, 15, ("Lady Ann",))
    >>> replace_names(question, ["Bo"], rng=np.random.default_rng(0))[1:]
    ('He met Lady Bo.', 7, 14, ('Lady Bo',))
    """
    text, passage, begin, end, answers = question
    words = sorted({*name_words((passage, text)), *" ".join(answers).split()} - TITLES)
    indices = rng.choice(len(pool), size=len(words), replace=len(pool) < len(words))
    new_word = {word: pool[int(i)] for word, i in zip(words, indices)}
    rename = lambda text: _CAPITAL.sub(lambda word: new_word.get(word[0], word[0]), text)
    before, answer, after = map(rename, (passage[:begin], passage[begin:end], passage[end:]))
    return Question(
        rename(text),
        before + answer + after,
        len(before),
        len(before) + len(answer),
        tuple(map(rename, answers)),
    )


def read_squad(file: str | Path) -> dict[str, list[Question]]:
    """The questions of a SQuAD 1.1 file, by article. (Rajpurkar et al. 2016)

    Raises `ValueError` if the file is too large, damaged or of another format.
    """
    if not Path(file).is_file():
        raise ValueError(
            f"squad: there is no file {file}; give a SQuAD 1.1 file in JSON, such as "
            "train-v1.1.json."
        )
    name, raw = contents(file, limit=MAX_FILE_BYTES)
    with reading(name, "SQuAD 1.1"):
        if raw.count(b"{") + raw.count(b"[") > MAX_JSON_NODES:
            raise ValueError(
                f"{name}: has more than {MAX_JSON_NODES:,} lists and objects; expected a SQuAD 1.1 "
                "file."
            )
        articles: dict[str, list[Question]] = {}
        for article in json.loads(raw)["data"]:
            questions = articles.setdefault(str(article["title"]), [])
            for paragraph in article["paragraphs"]:
                passage = str(paragraph["context"])
                questions += [_read_question(name, passage, entry) for entry in paragraph["qas"]]
        if not any(articles.values()):
            raise ValueError(f"{name}: contains no questions.")
        return articles


def _read_question(name: str, passage: str, entry: dict[str, Any]) -> Question:
    text = str(entry["question"])
    answers = entry["answers"]
    if not answers:
        raise ValueError(
            f"{name}: {text!r} has no answer; give a SQuAD 1.1 file, in which every question "
            "has one."
        )
    texts = tuple(str(answer["text"]) for answer in answers)
    begin = int(answers[0]["answer_start"])
    if not texts[0] or begin < 0 or passage[begin : begin + len(texts[0])] != texts[0]:
        raise ValueError(
            f"{name}: the answer {texts[0]!r} to {text!r} is not at character {begin} of its "
            "passage."
        )
    return Question(text, passage, begin, begin + len(texts[0]), texts)


def most_frequent_name(question: Question) -> str:
    """The most frequent name of the passage that is not in the question; of equals the first."""
    counts = Counter(name for name in find_names(question.passage) if name not in question.text)
    return counts.most_common(1)[0][0] if counts else ""


class SquadScores(NamedTuple):
    """SQuAD's two metrics, in percent: exact matches, and the mean F1 score of the words."""

    exact: float
    f1: float


def squad_scores(predictions: Iterable[str], questions: Sequence[Question]) -> SquadScores:
    """The scores of predicted answers, each against the correct answer nearest to it.

    Capitals, articles and punctuation are ignored.

    >>> question = Question("Who?", "It was the old king.", 7, 19, ("the old king",))
    >>> (
    ...     squad_scores(["Old king!"], [question]).exact,
    ...     round(squad_scores(["a king"], [question]).f1, 1),
    ... )
    (100.0, 66.7)
    """
    exact = []
    f1 = []
    for prediction, question in zip(predictions, questions, strict=True):
        text = _normalise(prediction)
        answers = [_normalise(answer) for answer in question.answers]
        exact.append(text in answers)
        f1.append(max(_word_f1(text.split(), answer.split()) for answer in answers))
    return SquadScores(100 * sum(exact) / len(exact), 100 * sum(f1) / len(f1))


def _normalise(text: str) -> str:
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(_ARTICLE.sub(" ", letters).split())


def _word_f1(predicted: list[str], correct: list[str]) -> float:
    r"""$2pr/(p + r)$ of precision $p$ and recall $r$ of the words."""
    common = (Counter(predicted) & Counter(correct)).total()
    return 2 * common / (len(predicted) + len(correct)) if common else float(predicted == correct)
