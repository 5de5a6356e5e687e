"""Questions whose answer is a span of a passage (§6.5): cut from a text, or read from a file of
SQuAD 1.1.

A question cut from a text is a sentence in which a name is hidden. The passage is what was told
just before, in which the name occurs, and at least one other does.
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

GAP = "[MASK]"  # what stands for the name that is hidden
LIMIT = 96 << 20  # bytes of a file of questions
BRACKETS = 4_000_000  # lists and objects in it
PASSAGE = 80  # words of a passage, about
LONG = 40  # words of a sentence that becomes a question, at most
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
    """A question, the passage, the characters from `begin` to before `end` of it that answer, and
    all that is right.
    """

    asks: str
    passage: str
    begin: int
    end: int
    answers: tuple[str, ...]


def words(text: str) -> list[tuple[int, int]]:
    """Where each word, or mark of punctuation, begins and ends.

    >>> words("Who, I?")
    [(0, 3), (3, 4), (5, 6), (6, 7)]
    """
    return [word.span() for word in _WORD.finditer(text)]


def names(text: str) -> list[str]:
    """The names in a text: words with a capital inside a sentence.

    >>> names("Then came Alice, and Bill Lizard was with Alice.")
    ['Alice', 'Bill Lizard', 'Alice']
    """
    return _NAME.findall(text)


def cut_questions(sentences: Sequence[str]) -> Iterator[Question]:
    """A question from each sentence of a text that has a name in it which was told just before.

    >>> told = [
    ...     "Then he met Alice and Bill.",
    ...     "Nobody else was there.",
    ...     "So he asked Alice to stay.",
    ... ]
    >>> question = next(cut_questions(told))
    >>> question.asks, question.answers, question.passage[question.begin : question.end]
    ('So he asked [MASK] to stay.', ('Alice',), 'Alice')
    """
    for i, sentence in enumerate(sentences):
        if len(sentence.split()) > LONG:
            continue
        passage = _before(sentences, i)
        known = set(names(passage))
        for name in names(sentence):
            place = re.search(rf"\b{re.escape(name)}\b", passage)
            if place and known - {name} and sentence.count(name) == 1:
                yield Question(sentence.replace(name, GAP), passage, *place.span(), (name,))
                break


def _before(sentences: Sequence[str], i: int) -> str:
    """The sentences before that one, as many as fit into a passage; at least one, or its end."""
    taken = []
    count = 0
    for sentence in reversed(sentences[max(0, i - PASSAGE) : i]):
        count += len(sentence.split())
        if taken and count > PASSAGE:
            break
        taken.append(sentence)
    return " ".join(" ".join(reversed(taken)).split()[-2 * PASSAGE :])


def name_words(texts: Iterable[str]) -> list[str]:
    """The words of which the names in some texts are made, each once, without titles.

    >>> name_words(["Then came Lady Ann Bell, and Ann was with Bo."])
    ['Ann', 'Bell']
    """
    return sorted(
        {word for text in texts for name in names(text) for word in name.split()} - TITLES
    )


def renamed(question: Question, pool: Sequence[str], *, draw: np.random.Generator) -> Question:
    """The same question about others: each word of a name becomes one of the pool, the same
    wherever it stands.

    Who learns from such questions cannot learn who is who, and has to read. (Hermann et al. 2015
    put numbers in the place of names.)

    >>> question = Question("So he asked [MASK].", "He met Lady Ann.", 7, 15, ("Lady Ann",))
    >>> renamed(question, ["Bo"], draw=np.random.default_rng(0))[1:]
    ('He met Lady Bo.', 7, 14, ('Lady Bo',))
    """
    asks, passage, begin, end, answers = question
    own = sorted({*name_words((passage, asks)), *" ".join(answers).split()} - TITLES)
    chosen = draw.choice(len(pool), size=len(own), replace=len(pool) < len(own))
    become = {word: pool[int(i)] for word, i in zip(own, chosen)}
    told = lambda text: _CAPITAL.sub(lambda word: become.get(word[0], word[0]), text)
    before, answer, after = map(told, (passage[:begin], passage[begin:end], passage[end:]))
    return Question(
        told(asks),
        before + answer + after,
        len(before),
        len(before) + len(answer),
        tuple(map(told, answers)),
    )


def read_squad(file: str | Path) -> dict[str, list[Question]]:
    """The questions of a file of SQuAD 1.1, by article. (Rajpurkar et al. 2016)

    A file that is too large, damaged or of another form is a `ValueError` that says so.
    """
    if not Path(file).is_file():
        raise ValueError(
            f"squad: there is no file {file}; give one of SQuAD 1.1 in JSON, such as "
            "train-v1.1.json."
        )
    name, raw = contents(file, limit=LIMIT)
    with reading(name, "SQuAD 1.1"):
        if raw.count(b"{") + raw.count(b"[") > BRACKETS:
            raise ValueError(
                f"{name}: has more than {BRACKETS:,} lists and objects; that is no file of "
                "questions."
            )
        found: dict[str, list[Question]] = {}
        for article in json.loads(raw)["data"]:
            own = found.setdefault(str(article["title"]), [])
            for paragraph in article["paragraphs"]:
                passage = str(paragraph["context"])
                own += [_asked(name, passage, entry) for entry in paragraph["qas"]]
        if not any(found.values()):
            raise ValueError(f"{name}: has no question in it.")
        return found


def _asked(name: str, passage: str, entry: dict[str, Any]) -> Question:
    asks = str(entry["question"])
    answers = entry["answers"]
    if not answers:
        raise ValueError(
            f"{name}: {asks!r} has no answer; give a file of SQuAD 1.1, in which every question "
            "has one."
        )
    texts = tuple(str(answer["text"]) for answer in answers)
    begin = int(answers[0]["answer_start"])
    if not texts[0] or begin < 0 or passage[begin : begin + len(texts[0])] != texts[0]:
        raise ValueError(
            f"{name}: the answer {texts[0]!r} to {asks!r} does not stand at {begin} of its passage."
        )
    return Question(asks, passage, begin, begin + len(texts[0]), texts)


def commonest_name(question: Question) -> str:
    """The name that occurs most often in the passage and not in the question; of equals the
    first.
    """
    counted = Counter(name for name in names(question.passage) if name not in question.asks)
    return counted.most_common(1)[0][0] if counted else ""


class Marks(NamedTuple):
    """The shares, in percent, of answers that are exactly right, and of their words (SQuAD's two
    measures).
    """

    exact: float
    f1: float


def mark(said: Iterable[str], questions: Sequence[Question]) -> Marks:
    """How right answers are, each by the right one it is nearest to; capitals, articles and
    punctuation do not count.

    >>> question = Question("Who?", "It was the old king.", 7, 19, ("the old king",))
    >>> mark(["Old king!"], [question]).exact, round(mark(["a king"], [question]).f1, 1)
    (100.0, 66.7)
    """
    exact = []
    f1 = []
    for text, question in zip(said, questions, strict=True):
        exact.append(max(_plain(text) == _plain(answer) for answer in question.answers))
        f1.append(
            max(
                _overlap(_plain(text).split(), _plain(answer).split())
                for answer in question.answers
            )
        )
    return Marks(100 * sum(exact) / len(exact), 100 * sum(f1) / len(f1))


def _plain(text: str) -> str:
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def _overlap(said: list[str], right: list[str]) -> float:
    r"""$2pr/(p + r)$, where $p$ of the words that were said are right, and $r$ of the right ones
    were said.
    """
    both = (Counter(said) & Counter(right)).total()
    return 2 * both / (len(said) + len(right)) if both else float(said == right)
