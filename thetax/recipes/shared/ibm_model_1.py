r"""IBM model 1: word translation probabilities from sentence pairs (Brown, Della Pietra, Della
Pietra & Mercer 1993).

Each word $g_i$ of the target is aligned to a uniformly random word $e_j$ of the source, or to the
null word $e_0$:

$$p(g_{1:m} \mid e_{1:l}) = \prod_{i=1}^m \frac{1}{l + 1} \sum_{j=0}^l t(g_i \mid e_j).$$

The E-step of EM computes expected counts,
$c(g, e) = \sum_{i, j} t(g_i \mid e_j) / \sum_k t(g_i \mid e_k)$, and its M-step is
$t(g \mid e) = c(g, e) / \sum_{g'} c(g', e)$. The log-likelihood is concave in $t$, so EM converges
to a global maximum.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ...check import expect_count

NULL_WORD = ""
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def split_words(text: str) -> list[str]:
    """The words of a text, without punctuation; capitals are kept.

    >>> split_words("And he said, What's that?")
    ['And', 'he', 'said', "What's", 'that']
    """
    return _WORD.findall(text)


@dataclass(frozen=True)
class IBMModel1:
    r"""The translation $\arg\max_g t(g \mid e)$ of each word $e$ and its probability, and $\log p$
    per target word in each iteration.
    """

    translations: Mapping[str, str]
    probabilities: Mapping[str, float]
    log_likelihoods: tuple[float, ...]

    @classmethod
    def fit(
        cls, sources: Sequence[str], targets: Sequence[str], *, iterations: int = 5
    ) -> "IBMModel1":
        """Fits the model to texts and their translations by EM.

        >>> dictionary = IBMModel1.fit(
        ...     ["the house", "the book", "a book"],
        ...     ["das Haus", "das Buch", "ein Buch"],
        ...     iterations=20,
        ... )
        >>> dictionary.translate("a house")
        'ein Haus'
        """
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                f"IBMModel1: expected a target for each source; got {len(targets)} targets for "
                f"{len(sources)} sources."
            )
        expect_count("IBMModel1", iterations=iterations)
        source_words, source_rows = _word_indices(sources)
        target_words, target_rows = _word_indices(targets)
        null = len(source_words)  # index of the null word
        e, g, position, n_candidates = _alignments(
            [np.append(row, null) for row in source_rows], target_rows
        )
        pairs, pair = np.unique(e * len(target_words) + g, return_inverse=True)
        e = pairs // len(target_words)
        t = np.full(len(pairs), 1 / len(target_words))
        log_likelihoods = []
        for _ in range(iterations):
            p = t[pair]
            total = np.bincount(position, p)
            log_likelihoods.append(float(np.mean(np.log(total) - np.log(n_candidates))))
            count = np.bincount(pair, p / total[position])
            t = count / np.bincount(e, count)[e]
        best = _best(e, t)
        words = [(*source_words, NULL_WORD)[e[i]] for i in best]
        return cls(
            {word: target_words[pairs[i] % len(target_words)] for word, i in zip(words, best)},
            {word: float(t[i]) for word, i in zip(words, best)},
            tuple(log_likelihoods),
        )

    def translate(self, text: str) -> str:
        """Replaces each word by its most probable translation; unknown words are kept."""
        return _WORD.sub(lambda word: self.translations.get(word[0], word[0]), text)


def _word_indices(texts: Sequence[str]) -> tuple[list[str], list[np.ndarray]]:
    """The vocabulary in alphabetical order, and the word indices of each text."""
    rows = [split_words(str(text)) for text in texts]
    if not all(rows):
        raise ValueError(
            f"IBMModel1: text {next(i for i, row in enumerate(rows) if not row)} has no words; "
            "leave it out."
        )
    words, indices = np.unique(np.array(list(chain.from_iterable(rows))), return_inverse=True)
    return words.tolist(), np.split(indices, np.cumsum([len(row) for row in rows])[:-1])


def _alignments(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of a source word and a target word of the same sentences: the two word indices and
    the position of the target word among all; and for each position its number of pairs.
    """
    sizes = np.array([len(row) for row in sources])
    lengths = np.array([len(row) for row in targets])
    n_candidates = np.repeat(sizes, lengths)
    e = np.concatenate([np.tile(source, len(target)) for source, target in zip(sources, targets)])
    position = np.repeat(np.arange(lengths.sum()), n_candidates)
    return e, np.concatenate(targets)[position], position, n_candidates


def _best(e: np.ndarray, t: np.ndarray) -> np.ndarray:
    """For each distinct `e` the index of the largest `t`, the first of equals."""
    order = np.lexsort((-t, e))
    return order[np.unique(e[order], return_index=True)[1]]
