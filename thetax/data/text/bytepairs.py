r"""Byte pairs, the vocabulary of GPT-2 and its kin: pieces are runs of bytes, so every text can be
written with them.

A byte is written as a letter: the printable ones of Latin-1 as themselves, the others as the
letters from U+0100 on, so that a blank is Ġ. The text is cut into words with the blank before them,
and in each the pairs are merged in the order in which they were learned (Sennrich et al. 2016,
Radford et al. 2019).
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from .merges import Merge, Score, frequency, learn_merges
from .tokeniser import Tokeniser, engines
from .words import STRANGE, Texts, listed

END = "<|endoftext|>"
_PRINTABLE = [
    *range(ord("!"), ord("~") + 1),
    *range(ord("¡"), ord("¬") + 1),
    *range(ord("®"), ord("ÿ") + 1),
]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(_OTHERS)
}
_LETTER = {byte: letter for letter, byte in BYTE.items()}
_SEAM = re.compile(r"(?<=\S)(?= \S)")  # before a single blank between two words every word ends


class BytePairs(Tokeniser):
    """Runs of bytes by number, and the pairs that make them, in order; `special` names pieces that
    are not bytes.

    `digits=True` cuts numbers into single digits first, as SmolLM2 does. Some vocabularies, that
    one too, lack a few bytes of control characters; a text that has one is refused.

    >>> known = BytePairs(
    ...     [*sorted(BYTE), "lo", "low", "<end>"], [("l", "o"), ("lo", "w")], special=["<end>"]
    ... )
    >>> known.tokens("low<end>").tolist(), known.decode([257, 258])
    ([257, 258], 'low<end>')
    >>> known.decode(known.tokens("naïve 😀"))
    'naïve 😀'
    >>> list(known.spell(known.tokens("a😀")))  # four bytes make one character
    ['a', '😀']
    """

    merges: tuple[Merge, ...]
    digits: bool

    def __init__(
        self,
        pieces: Iterable[str],
        merges: Iterable[Sequence[str]],
        *,
        special: Sequence[str] = (),
        digits: bool = False,
    ):
        super().__init__(pieces, special=special)
        self.merges, self.digits = tuple((a, b) for a, b in merges), digits
        for i, (a, b) in enumerate(self.merges):
            if not {a, b, a + b} <= self.numbers.keys():
                raise ValueError(
                    f"BytePairs: merge {i} makes {a + b!r} of {a!r} and {b!r}, which are not all "
                    "pieces."
                )
        if not self._bytes.keys() | set(self.special) >= set(range(len(self))):
            odd = next(
                i for i in range(len(self)) if i not in self._bytes and i not in self.special
            )
            raise ValueError(
                f"BytePairs: piece {odd}, {self.pieces[odd]!r}, is neither special nor letters "
                "for bytes."
            )

    @classmethod
    def fit(
        cls,
        texts: Texts,
        *,
        size: int = 8000,
        special: Sequence[str] = (END,),
        digits: bool = False,
        score: Score = frequency,
        least: int = 1,
    ) -> "BytePairs":
        """Learns from texts: the special pieces, the 256 bytes, and what merging the most frequent
        pair makes, again and again, while a pair is met `least` times or more; of equals the first
        by the alphabet.

        >>> known = BytePairs.fit(["the cat, the hat"], size=261)
        >>> known.pieces[257:], known.merges[0]
        (('at', 'he', 'the', 'cat'), ('a', 't'))
        """
        if size < len(special) + len(BYTE):
            least_size = len(special) + len(BYTE)
            raise ValueError(
                f"BytePairs.fit: bytes and special pieces are {least_size}; size={size} is too "
                "small."
            )
        words = _counted(listed(texts), digits)
        learned = learn_merges(
            words,
            size=size - len(special),
            score=score,
            join=str.__add__,
            letters=sorted(BYTE),
            least=least,
        )
        return cls((*special, *learned.pieces), learned.merges, special=special, digits=digits)

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        """The bytes of each piece that is made of them."""
        made = {
            number: [BYTE.get(letter, -1) for letter in piece]
            for number, piece in enumerate(self.pieces)
        }
        return {
            number: bytes(letters)
            for number, letters in made.items()
            if min(letters, default=-1) >= 0
        }

    def _cut(self, texts: list[str], special: bool) -> list[list[int]]:
        rows = super()._cut(texts, special)
        if self._missing:  # a machine would leave them out without a word
            for text in texts:
                lost = next(
                    (letter for letter in text if self._missing & set(letter.encode())), None
                )
                if lost is not None:
                    raise ValueError(
                        f"BytePairs: no piece has the bytes of {lost!r}; remove it from the text."
                    )
        return rows

    @cached_property
    def _missing(self) -> frozenset[int]:
        return frozenset(byte for letter, byte in BYTE.items() if letter not in self.numbers)

    def _made(self) -> Any:
        tokenizers = engines()
        engine = tokenizers.Tokenizer(tokenizers.models.BPE(self.numbers, list(self.merges)))
        engine.pre_tokenizer = _words(self.digits)
        engine.decoder = tokenizers.decoders.ByteLevel()
        return engine

    def _spelled(self, tokens: Iterable[int]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            name = self._piece(token).encode()
            yield decoder.decode(
                name if token in self.special else self._bytes.get(token, STRANGE.encode())
            )
        yield decoder.decode(b"", final=True)


def _words(digits: bool) -> Any:
    """How a text is cut into words: GPT-2's way, perhaps after every digit."""
    cut = engines().pre_tokenizers
    level = cut.ByteLevel(add_prefix_space=False, use_regex=True)
    return cut.Sequence([cut.Digits(individual_digits=True), level]) if digits else level


def _counted(texts: Iterable[str], digits: bool) -> dict[str, int]:
    """How often each word occurs, written in letters for its bytes."""
    chunks = Counter()
    words = Counter()
    cut = _words(digits)
    for text in texts:  # few chunks are new
        chunks.update(_SEAM.split(text))
    for chunk, count in chunks.items():
        for word, _ in cut.pre_tokenize_str(chunk):
            words[word] += count
    return words
