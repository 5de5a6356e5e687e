"""What every vocabulary of pieces can do, whatever its pieces are: numbers of a text, and the text
of numbers.

A token is the number of a piece, from 0 to V - 1, and -1 stands for nothing, where a short text is
filled up. The work of cutting a text is done by the library `tokenizers`, which is asked for only
when a text comes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from .words import NOTHING, STRANGE, Texts, filled, listed


class Tokeniser(ABC):
    """Pieces by number; some of them are special: marks that no text is cut into, such as the one
    for a gap.
    """

    pieces: tuple[str, ...]
    special: tuple[int, ...]  # the numbers of the special ones, rising

    def __init__(self, pieces: Iterable[str], *, special: Sequence[str]):
        self.pieces = tuple(pieces)
        if len(self.numbers) != len(self.pieces):
            twice = next(piece for i, piece in enumerate(self.pieces) if self.numbers[piece] != i)
            raise ValueError(
                f"{self._kind}: the piece {twice!r} is given twice; every piece has one number."
            )
        self.special = tuple(sorted({self.number(name) for name in special}))

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def _kind(self) -> str:
        return type(self).__name__

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each piece."""
        return {piece: number for number, piece in enumerate(self.pieces)}

    def number(self, piece: str) -> int:
        """The number of one piece, for instance of a special one."""
        if piece not in self.numbers:
            raise ValueError(f"{self._kind}: there is no piece {piece!r} among the {len(self):,}.")
        return self.numbers[piece]

    def tokens(self, text: str, *, special: bool = True) -> Int[np.ndarray, " t"]:
        """The tokens of one text. The name of a special piece in it stands for that piece; with
        `special=False` it is text like any other, as what a stranger wrote must be.
        """
        return np.array(self._cut([text], special)[0], np.int32)

    def encode(self, texts: Texts, *, length: int) -> Int[np.ndarray, "n {length}"]:
        """The first `length` tokens of each text; what is shorter is filled up at the end with
        -1.
        """
        if length < 1:
            raise ValueError(
                f"{self._kind}.encode: length counts tokens and must be at least 1; got {length}."
            )
        return filled((row[:length] for row in self._cut(listed(texts), True)), length)

    def decode(self, tokens: Any) -> str:
        """The text of a row of tokens; -1 is nothing, and any other that is no piece's number is
        `STRANGE`.
        """
        row = np.asarray(tokens)
        if row.ndim != 1:
            raise ValueError(
                f"{self._kind}.decode: expected one row of numbers, got {row.shape}; decode row "
                "by row."
            )
        return "".join(self.spell(row.tolist()))

    def spell(self, tokens: Iterable[Any]) -> Iterator[str]:
        """The text of tokens as they come, for instance out of a model: never half a character,
        never an empty one.
        """
        for text in self._spelled(int(token) for token in tokens if token != NOTHING):
            if text:
                yield text

    def _piece(self, token: int) -> str:
        return self.pieces[token] if 0 <= token < len(self) else STRANGE

    def _cut(self, texts: list[str], special: bool) -> list[list[int]]:
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(
                    f"{self._kind}: expected texts, but number {i} is {type(text).__name__}."
                )
            if not _is_unicode(text):
                raise ValueError(
                    f"{self._kind}: text {i} has half a surrogate pair, which is no character; "
                    "remove it."
                )
        engine = self._engine if special else self._plain_engine
        return [found.ids for found in engine.encode_batch_fast(texts, add_special_tokens=False)]

    @cached_property
    def _engine(self) -> Any:
        """The machine that cuts."""
        engine = self._made()
        mark = engines().AddedToken
        names = [self.pieces[number] for number in self.special]
        engine.add_special_tokens([mark(name, normalized=False, special=True) for name in names])
        return engine

    @cached_property
    def _plain_engine(self) -> Any:
        return self._made()

    @abstractmethod
    def _made(self) -> Any:
        """A machine that knows nothing special."""

    @abstractmethod
    def _spelled(self, tokens: Iterable[int]) -> Iterator[str]:
        """What each token adds to the text, perhaps nothing yet."""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def engines() -> Any:
    """The library that cuts texts, or what to do where it is missing."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "Pieces of words need the library tokenizers: pip install 'thetax[text]'."
        ) from error
    return tokenizers
