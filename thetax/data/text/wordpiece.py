"""WordPiece, the vocabulary of BERT (§6.5): a word is cut into the longest pieces there are, from
left to right.

A piece inside a word wears the mark ##. Text is first made plain: no control characters, lower case
without accents, punctuation and Chinese characters as words of their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .merges import Score, association, learn_merges
from .tokeniser import Tokeniser, engines
from .words import Texts, listed

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNKNOWN = "[UNK]"
INSIDE = "##"  # how a piece begins that is not the beginning of a word
LONGEST = 100  # a word of more characters is unknown


class WordPiece(Tokeniser):
    """Pieces of words by number, as in BERT's `vocab.txt`; a word that cannot be cut into them is
    [UNK].

    `lower=False` keeps capitals and accents. `special` names the special pieces; unless given,
    those of BERT that are there. (§6.5; Schuster and Nakajima 2012, Devlin et al. 2019)

    >>> known = WordPiece(["[UNK]", "un", "##believ", "##able", "##a", "!"])
    >>> known.tokens("Unbelievable! no").tolist()
    [1, 2, 3, 5, 0]
    >>> known.decode([1, 2, 3, 5, -1])
    'unbelievable !'
    >>> known.encode(["un", "unable!"], length=2).tolist()
    [[1, -1], [1, 3]]
    """

    lower: bool

    def __init__(
        self, pieces: Iterable[str], *, special: Sequence[str] | None = None, lower: bool = True
    ):
        pieces = tuple(pieces)
        super().__init__(
            pieces, special=[s for s in SPECIAL if s in pieces] if special is None else special
        )
        self.number(UNKNOWN)
        self.lower = lower

    @classmethod
    def fit(
        cls,
        texts: Texts,
        *,
        size: int = 8000,
        score: Score = association,
        least: int = 1,
        lower: bool = True,
    ) -> "WordPiece":
        r"""Learns `size` pieces from texts: letters, and then what merging the best pair makes,
        again and again.

        The best maximises $n(ab) / (n(a)\,n(b))$ among the pairs met `least` times or more; of
        equals the first by the alphabet. On eighteen books (12 MB) the rule alone spends the pieces
        on rare names: with 8,000 there are 3.3 tokens from blank to blank, with `least=80` 1.42
        (and 7,448 pieces), with `score=frequency` 1.36.

        >>> known = WordPiece.fit(["hug pug hugs", "pun bun hug"], size=18)
        >>> known.pieces[5:]
        ('##g', '##n', '##s', '##u', 'b', 'h', 'p', '##gs', '##ug', '##ugs', '##un', 'bun', 'pun')
        """
        words = _counted(listed(texts), lower)
        letters = {letter for word in words for letter in word}
        if len(SPECIAL) + len(letters) > size:
            raise ValueError(
                f"WordPiece.fit: the texts have {len(letters)} letters, which with {len(SPECIAL)} "
                f"special pieces are more than size={size}; choose a larger one."
            )
        learned = learn_merges(
            words, size=size - len(SPECIAL), score=score, join=_join, least=least
        )
        return cls((*SPECIAL, *learned.pieces), lower=lower)

    def _made(self) -> Any:
        models, processors = engines().models, engines().processors
        model = models.WordPiece(
            self.numbers,
            unk_token=UNKNOWN,
            max_input_chars_per_word=LONGEST,
            continuing_subword_prefix=INSIDE,
        )
        engine = engines().Tokenizer(model)
        engine.normalizer, engine.pre_tokenizer = _plain(self.lower)
        engine.decoder = engines().decoders.WordPiece(prefix=INSIDE)
        if (
            "[CLS]" in self.numbers and "[SEP]" in self.numbers
        ):  # for those who read the file with another library
            sep = ("[SEP]", self.numbers["[SEP]"])
            cls = ("[CLS]", self.numbers["[CLS]"])
            engine.post_processor = processors.BertProcessing(sep, cls)
        return engine

    def _spelled(self, tokens: Iterable[int]) -> Iterator[str]:
        for i, token in enumerate(tokens):
            piece = self._piece(token)
            inside = piece.startswith(INSIDE) and len(piece) > len(INSIDE)
            yield piece.removeprefix(INSIDE) if inside else f" {piece}" if i else piece


def _join(a: str, b: str) -> str:
    return a + b.removeprefix(INSIDE)


def _plain(lower: bool) -> tuple[Any, Any]:
    """How a text is made plain, and how it is cut into words."""
    tokenizers = engines()
    return tokenizers.normalizers.BertNormalizer(
        lowercase=lower
    ), tokenizers.pre_tokenizers.BertPreTokenizer()


def _counted(texts: Iterable[str], lower: bool) -> dict[tuple[str, ...], int]:
    """How often each word occurs, by its letters."""
    chunks, words, (normalise, cut) = Counter(), Counter(), _plain(lower)
    for text in texts:  # a blank or a new line parts words in any case, and few chunks are new
        chunks.update(text.replace("\n", " ").split(" "))
    for chunk, count in chunks.items():
        for word, _ in cut.pre_tokenize_str(normalise.normalize_str(chunk)):
            words[word] += count
    return {
        (word[0], *(INSIDE + letter for letter in word[1:])): count
        for word, count in words.items()
        if len(word) <= LONGEST
    }
