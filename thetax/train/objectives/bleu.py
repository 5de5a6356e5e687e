r"""BLEU score of translations against references (Papineni, Roukos, Ward, Zhu 2002).

Let $p_n$ be the clipped n-gram precision over the corpus: the share of the n-grams of the
hypotheses that occur in their reference, each counted at most as often as there; $c$ and $r$ the
numbers of tokens of hypotheses and references. Then

$$\mathrm{BLEU} = 100 \, \min\bigl(1, e^{1 - r/c}\bigr) \Bigl(\prod_{n=1}^4 p_n\Bigr)^{1/4}.$$
"""

from collections.abc import Sequence


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, from 0 to 100, of hypotheses against references, one reference each.

    It is computed by sacrebleu on plain text with its default tokeniser (`13a`) and smoothing, so
    that scores are comparable with published ones. Requires `pip install 'thetax[text]'`.

    >>> bleu(["the cat sat on the mat"], ["the cat sat on the mat"])
    100.0
    >>> round(bleu(["the cat sat on a mat"], ["the cat sat on the mat"]), 1)
    53.7
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("bleu: expected lists of sentences; got a string. Put it into a list.")
    if len(hypotheses) != len(references) or len(hypotheses) == 0:
        raise ValueError(
            f"bleu: expected one reference per hypothesis; got {len(references)} references and "
            f"{len(hypotheses)} hypotheses."
        )
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise ImportError("bleu requires sacrebleu: pip install 'thetax[text]'.") from error
    references = [str(text) for text in references]
    score = BLEU().corpus_score([str(text) for text in hypotheses], [references]).score
    return min(float(score), 100.0)  # the fourth root can exceed 1 by rounding
