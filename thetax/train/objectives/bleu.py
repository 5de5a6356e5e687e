r"""How near a translation is to one that was meant: BLEU (Papineni, Roukos, Ward, Zhu 2002).

Let $p_n$ be the share of the n-grams said that are also meant, each counted at most as often as it
is meant, over the whole corpus; $c$ and $r$ the numbers of tokens said and meant. Then

$$\mathrm{BLEU} = 100 \, \min\bigl(1, e^{1 - r/c}\bigr) \Bigl(\prod_{n=1}^4 p_n\Bigr)^{1/4}.$$
"""

from collections.abc import Sequence


def bleu(said: Sequence[str], meant: Sequence[str]) -> float:
    """Corpus BLEU, from 0 to 100, of sentences that were said against those that were meant, one
    for each.

    It is computed by sacrebleu on plain text, with its tokens `13a` and its smoothing, so that
    numbers compare with those of others; needs `pip install 'thetax[text]'`.

    >>> bleu(["the cat sat on the mat"], ["the cat sat on the mat"])
    100.0
    >>> round(bleu(["the cat sat on a mat"], ["the cat sat on the mat"]), 1)
    53.7
    """
    if isinstance(said, str) or isinstance(meant, str):
        raise ValueError("bleu: expected sentences, got one string; put it into a list.")
    if len(said) != len(meant) or len(said) == 0:
        raise ValueError(
            f"bleu: expected one sentence meant for each one said, got {len(meant)} for "
            f"{len(said)}."
        )
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise ImportError(
            "BLEU needs the library sacrebleu: pip install 'thetax[text]'."
        ) from error
    score = BLEU().corpus_score([str(text) for text in said], [[str(text) for text in meant]]).score
    return min(float(score), 100.0)  # the fourth root can exceed 1 by a rounding
