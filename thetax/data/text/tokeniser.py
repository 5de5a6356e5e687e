"""The interface of subword tokenisers: texts to token ids, and token ids back to text.

A token id lies between 0 and V - 1, where V is the size of the vocabulary; -1 is padding. The
library `tokenizers` splits the texts; it is imported when the first text is encoded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from ...check import expect_count, suggest
from .words import PADDING, REPLACEMENT_CHARACTER, Texts, as_list, pad_to


class Tokeniser(ABC):
    """A vocabulary of subword pieces, in the order of their ids.

    Special tokens such as [MASK] are pieces that ordinary text is never split into.
    """

    pieces: tuple[str, ...]
    special_ids: tuple[int, ...]  # the ids of the special tokens, in increasing order

    def __init__(self, pieces: Iterable[str], *, special_tokens: Sequence[str]):
        self.pieces = tuple(pieces)
        if len(self.piece_ids) != len(self.pieces):
            twice = next(piece for i, piece in enumerate(self.pieces) if self.piece_ids[piece] != i)
            raise ValueError(
                f"{self._class_name}: pieces must be distinct; {twice!r} is given twice."
            )
        self.special_ids = tuple(sorted({self.piece_id(name) for name in special_tokens}))

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def _class_name(self) -> str:
        return type(self).__name__

    @cached_property
    def piece_ids(self) -> dict[str, int]:
        """The id of each piece."""
        return {piece: i for i, piece in enumerate(self.pieces)}

    def piece_id(self, piece: str) -> int:
        """The id of one piece, for instance of a special token."""
        if piece not in self.piece_ids:
            raise ValueError(
                f"{self._class_name}: there is no piece {piece!r} in the vocabulary of "
                f"{len(self):,} pieces; {suggest(piece, self.pieces)}list them with `.pieces`."
            )
        return self.piece_ids[piece]

    def tokens(self, text: str, *, parse_special: bool = True) -> Int[np.ndarray, " t"]:
        """The token ids of one text.

        The name of a special token in the text becomes that token. With `parse_special=False` it is
        split like any other text; use this for untrusted text.
        """
        return np.array(self._token_rows([text], parse_special)[0], np.int32)

    def encode(self, texts: Texts, *, length: int) -> Int[np.ndarray, "n {length}"]:
        """The first `length` token ids of each text, padded at the end with -1."""
        expect_count(f"{self._class_name}.encode", length=length)
        rows = self._token_rows(as_list(texts), True)
        return pad_to((row[:length] for row in rows), length)

    def decode(self, tokens: Any) -> str:
        """The text of a row of token ids; padding is skipped, unknown ids become
        `REPLACEMENT_CHARACTER`.
        """
        row = np.asarray(tokens)
        if row.ndim != 1:
            raise ValueError(
                f"{self._class_name}.decode: expected one row of token ids; got shape {row.shape}. "
                "Decode row by row."
            )
        return "".join(self.decode_stream(row.tolist()))

    def decode_stream(self, tokens: Iterable[Any]) -> Iterator[str]:
        """The text of a stream of token ids, for instance while a model generates them.

        Each string is yielded as soon as its last token is read. It is not empty and holds complete
        characters only.
        """
        for text in self._decode_parts(int(token) for token in tokens if token != PADDING):
            if text:
                yield text

    def _piece(self, token: int) -> str:
        return self.pieces[token] if 0 <= token < len(self) else REPLACEMENT_CHARACTER

    def _token_rows(self, texts: list[str], parse_special: bool) -> list[list[int]]:
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(
                    f"{self._class_name}: expected texts; got {type(text).__name__} at index {i}."
                )
            if not _is_unicode(text):
                raise ValueError(
                    f"{self._class_name}: the text at index {i} holds an unpaired surrogate, which "
                    "is not a character; remove it."
                )
        engine = self._engine if parse_special else self._plain_engine
        rows = engine.encode_batch_fast(texts, add_special_tokens=False)
        return [row.ids for row in rows]

    @cached_property
    def _engine(self) -> Any:
        """The tokenizer of the library `tokenizers`, with the special tokens."""
        engine = self._build_engine()
        added_token = import_tokenizers().AddedToken
        names = [self.pieces[i] for i in self.special_ids]
        engine.add_special_tokens(
            [added_token(name, normalized=False, special=True) for name in names]
        )
        return engine

    @cached_property
    def _plain_engine(self) -> Any:
        return self._build_engine()

    @abstractmethod
    def _build_engine(self) -> Any:
        """The tokenizer of the library `tokenizers`, without special tokens."""

    @abstractmethod
    def _decode_parts(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text that each token completes, possibly empty."""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def import_tokenizers() -> Any:
    """The library `tokenizers`; raises `ImportError` with the install command if it is missing."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "Subword tokenisers need the library tokenizers: pip install 'thetax[text]'."
        ) from error
    return tokenizers
