"""WordPiece, the tokeniser of BERT (§6.5): a word is split greedily into the longest pieces.

A piece that continues a word begins with ##. The text is normalised first: control characters are
removed, letters become lower case without accents, and punctuation marks and Chinese characters
are words of their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .merges import Score, learn_merges, pair_association
from .tokeniser import Tokeniser, import_tokenizers
from .words import Texts, as_list

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNKNOWN = "[UNK]"
CONTINUATION = "##"  # the prefix of a piece that continues a word
MAX_WORD_LENGTH = 100  # a longer word becomes [UNK]


class WordPiece(Tokeniser):
    """A WordPiece vocabulary in the order of its ids, as in BERT's `vocab.txt` (§6.5).

    A word that cannot be split into pieces becomes [UNK]. With `lowercase=False` capitals and
    accents are kept. `special_tokens` defaults to those of BERT's special tokens that are in the
    vocabulary. (Schuster and Nakajima 2012, Devlin et al. 2019)

    >>> tokeniser = WordPiece(["[UNK]", "un", "##believ", "##able", "##a", "!"])
    >>> tokeniser.tokens("Unbelievable! no").tolist()
    [1, 2, 3, 5, 0]
    >>> tokeniser.decode([1, 2, 3, 5, -1])
    'unbelievable !'
    >>> tokeniser.encode(["un", "unable!"], length=2).tolist()
    [[1, -1], [1, 3]]
    """

    lowercase: bool

    def __init__(
        self,
        pieces: Iterable[str],
        *,
        special_tokens: Sequence[str] | None = None,
        lowercase: bool = True,
    ):
        pieces = tuple(pieces)
        if special_tokens is None:
            special_tokens = [name for name in SPECIAL_TOKENS if name in pieces]
        super().__init__(pieces, special_tokens=special_tokens)
        self.piece_id(UNKNOWN)
        self.lowercase = lowercase

    @classmethod
    def fit(
        cls,
        texts: Texts,
        *,
        vocab_size: int = 8000,
        score: Score = pair_association,
        min_frequency: int = 1,
        lowercase: bool = True,
    ) -> "WordPiece":
        r"""Learns a vocabulary of `vocab_size` pieces from texts: letters, then merges of pairs.

        Each merge takes the pair with the largest $n(ab) / (n(a)\,n(b))$ among those that occur at
        least `min_frequency` times; ties go to the alphabetically first. With `min_frequency=1`
        many pieces go to rare names: on eighteen books (12 MB) with `vocab_size=8000` there are 3.3
        tokens per space-separated word, with `min_frequency=80` 1.42 (and 7,448 pieces), with
        `score=pair_frequency` 1.36.

        >>> tokeniser = WordPiece.fit(["hug pug hugs", "pun bun hug"], vocab_size=18)
        >>> tokeniser.pieces[5:]
        ('##g', '##n', '##s', '##u', 'b', 'h', 'p', '##gs', '##ug', '##ugs', '##un', 'bun', 'pun')
        """
        words = _count_words(as_list(texts), lowercase)
        letters = {letter for word in words for letter in word}
        smallest = len(SPECIAL_TOKENS) + len(letters)
        if vocab_size < smallest:
            raise ValueError(
                f"WordPiece.fit: vocab_size must be at least {smallest}, the number of distinct "
                f"letters ({len(letters)}) and special tokens ({len(SPECIAL_TOKENS)}); got "
                f"{vocab_size}."
            )
        learned = learn_merges(
            words,
            vocab_size=vocab_size - len(SPECIAL_TOKENS),
            score=score,
            join=_join,
            min_frequency=min_frequency,
        )
        return cls((*SPECIAL_TOKENS, *learned.pieces), lowercase=lowercase)

    def _build_engine(self) -> Any:
        tokenizers = import_tokenizers()
        model = tokenizers.models.WordPiece(
            self.piece_ids,
            unk_token=UNKNOWN,
            max_input_chars_per_word=MAX_WORD_LENGTH,
            continuing_subword_prefix=CONTINUATION,
        )
        engine = tokenizers.Tokenizer(model)
        engine.normalizer = _normaliser(self.lowercase)
        engine.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        engine.decoder = tokenizers.decoders.WordPiece(prefix=CONTINUATION)
        if "[CLS]" in self.piece_ids and "[SEP]" in self.piece_ids:
            # unused here, but other libraries that load the saved file expect it
            sep = ("[SEP]", self.piece_ids["[SEP]"])
            cls = ("[CLS]", self.piece_ids["[CLS]"])
            engine.post_processor = tokenizers.processors.BertProcessing(sep, cls)
        return engine

    def _decode_parts(self, tokens: Iterable[int]) -> Iterator[str]:
        for i, token in enumerate(tokens):
            piece = self._piece(token)
            if piece.startswith(CONTINUATION) and len(piece) > len(CONTINUATION):
                yield piece.removeprefix(CONTINUATION)
            else:
                yield f" {piece}" if i else piece


def _join(a: str, b: str) -> str:
    return a + b.removeprefix(CONTINUATION)


def _normaliser(lowercase: bool) -> Any:
    return import_tokenizers().normalizers.BertNormalizer(lowercase=lowercase)


def _count_words(texts: Iterable[str], lowercase: bool) -> dict[tuple[str, ...], int]:
    """The number of occurrences of each word, given as its letters with continuation prefixes."""
    chunks = Counter()
    words = Counter()
    normaliser = _normaliser(lowercase)
    splitter = import_tokenizers().pre_tokenizers.BertPreTokenizer()
    for text in texts:  # a space or a newline always ends a word; each chunk is split only once
        chunks.update(text.replace("\n", " ").split(" "))
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(chunk)):
            words[word] += count
    return {
        (word[0], *(CONTINUATION + letter for letter in word[1:])): count
        for word, count in words.items()
        if len(word) <= MAX_WORD_LENGTH
    }
