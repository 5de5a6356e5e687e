r"""Byte-pair encoding on bytes, the tokeniser of GPT-2: every text can be encoded (§6.5).

Each byte is written as one character: the printable ones of Latin-1 as themselves, the others as
the characters from U+0100 on, so a space is Ġ. A text is split into words, each with the space
before it; within a word pairs of pieces are merged in the order in which the merges were learned
(Sennrich et al. 2016, Radford et al. 2019).
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from .merges import Merge, Score, learn_merges, pair_frequency
from .tokeniser import Tokeniser, import_tokenizers
from .words import REPLACEMENT_CHARACTER, Texts, as_list

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
# A word always ends before a single space between two words.
_WORD_BOUNDARY = re.compile(r"(?<=\S)(?= \S)")


class BytePairEncoding(Tokeniser):
    """A byte-level byte-pair encoding: the pieces and the merges, in the order they are applied.

    `special_tokens` names the pieces that are not strings of bytes. With `split_digits=True`
    numbers are split into single digits first, as in SmolLM2. Some vocabularies lack the bytes of a
    few control characters; a text that contains one is refused.

    >>> tokeniser = BytePairEncoding(
    ...     [*sorted(BYTE), "lo", "low", "<end>"],
    ...     [("l", "o"), ("lo", "w")],
    ...     special_tokens=["<end>"],
    ... )
    >>> tokeniser.tokens("low<end>").tolist(), tokeniser.decode([257, 258])
    ([257, 258], 'low<end>')
    >>> tokeniser.decode(tokeniser.tokens("naïve 😀"))
    'naïve 😀'
    >>> list(tokeniser.decode_stream(tokeniser.tokens("a😀")))  # four bytes make one character
    ['a', '😀']
    """

    merges: tuple[Merge, ...]
    split_digits: bool

    def __init__(
        self,
        pieces: Iterable[str],
        merges: Iterable[Sequence[str]],
        *,
        special_tokens: Sequence[str] = (),
        split_digits: bool = False,
    ):
        super().__init__(pieces, special_tokens=special_tokens)
        self.merges = tuple((a, b) for a, b in merges)
        self.split_digits = split_digits
        for i, (a, b) in enumerate(self.merges):
            missing = [piece for piece in (a, b, a + b) if piece not in self.piece_ids]
            if missing:
                raise ValueError(
                    f"BytePairEncoding: merge {i} joins {a!r} and {b!r}, but {missing[0]!r} is not "
                    "in the vocabulary."
                )
        for i, piece in enumerate(self.pieces):
            if i not in self._piece_bytes and i not in self.special_ids:
                raise ValueError(
                    f"BytePairEncoding: piece {i}, {piece!r}, is neither a special token nor a "
                    "string of byte characters."
                )

    @classmethod
    def fit(
        cls,
        texts: Texts,
        *,
        vocab_size: int = 8000,
        special_tokens: Sequence[str] = (END,),
        split_digits: bool = False,
        score: Score = pair_frequency,
        min_frequency: int = 1,
    ) -> "BytePairEncoding":
        """Learns a vocabulary of `vocab_size` pieces from texts.

        It holds the special tokens, the 256 bytes, and the pieces that come of merging the most
        frequent pair repeatedly. A pair that occurs fewer than `min_frequency` times is not merged;
        of pairs with equal scores the alphabetically first is merged.

        >>> tokeniser = BytePairEncoding.fit(["the cat, the hat"], vocab_size=261)
        >>> tokeniser.pieces[257:], tokeniser.merges[0]
        (('at', 'he', 'the', 'cat'), ('a', 't'))
        """
        smallest = len(special_tokens) + len(BYTE)
        if vocab_size < smallest:
            raise ValueError(
                f"BytePairEncoding.fit: vocab_size must be at least {smallest}, the number of "
                f"bytes and special tokens; got {vocab_size}."
            )
        learned = learn_merges(
            _count_words(as_list(texts), split_digits),
            vocab_size=vocab_size - len(special_tokens),
            score=score,
            join=str.__add__,
            letters=sorted(BYTE),
            min_frequency=min_frequency,
        )
        return cls(
            (*special_tokens, *learned.pieces),
            learned.merges,
            special_tokens=special_tokens,
            split_digits=split_digits,
        )

    @cached_property
    def _piece_bytes(self) -> dict[int, bytes]:
        """The bytes of each piece that is a string of byte characters, by the id of the piece."""
        return {
            i: bytes(BYTE[character] for character in piece)
            for i, piece in enumerate(self.pieces)
            if piece and all(character in BYTE for character in piece)
        }

    def _token_rows(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        rows = super()._token_rows(texts, parse_special)
        if self._missing_bytes:  # the library drops such characters silently
            for text in texts:
                for character in text:
                    if self._missing_bytes & set(character.encode()):
                        raise ValueError(
                            f"BytePairEncoding: the vocabulary has no piece for a byte of "
                            f"{character!r}; remove this character from the text."
                        )
        return rows

    @cached_property
    def _missing_bytes(self) -> frozenset[int]:
        return frozenset(
            byte for character, byte in BYTE.items() if character not in self.piece_ids
        )

    def _build_engine(self) -> Any:
        tokenizers = import_tokenizers()
        engine = tokenizers.Tokenizer(tokenizers.models.BPE(self.piece_ids, list(self.merges)))
        engine.pre_tokenizer = _pre_tokeniser(self.split_digits)
        engine.decoder = tokenizers.decoders.ByteLevel()
        return engine

    def _decode_parts(self, tokens: Iterable[int]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            if token in self.special_ids:
                raw = self._piece(token).encode()
            else:
                raw = self._piece_bytes.get(token, REPLACEMENT_CHARACTER.encode())
            yield decoder.decode(raw)
        yield decoder.decode(b"", final=True)


def _pre_tokeniser(split_digits: bool) -> Any:
    """Splits a text into words as GPT-2 does; with `split_digits` each digit is a word."""
    splitters = import_tokenizers().pre_tokenizers
    byte_level = splitters.ByteLevel(add_prefix_space=False, use_regex=True)
    if not split_digits:
        return byte_level
    return splitters.Sequence([splitters.Digits(individual_digits=True), byte_level])


def _count_words(texts: Iterable[str], split_digits: bool) -> dict[str, int]:
    """The number of occurrences of each word, written in byte characters."""
    chunks = Counter()
    words = Counter()
    splitter = _pre_tokeniser(split_digits)
    for text in texts:  # chunks repeat often, so each is split only once
        chunks.update(_WORD_BOUNDARY.split(text))
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(chunk):
            words[word] += count
    return words
