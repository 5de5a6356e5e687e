"""The tokeniser of a GGUF file: byte-level BPE with a supported pre-tokeniser."""

from ..text.byte_pair_encoding import BytePairEncoding
from .file import TokenTable

# whether a pre-tokeniser splits numbers into digits
_SPLITS_DIGITS = {"gpt-2": False, "smollm": True}


def gguf_tokeniser(table: TokenTable) -> BytePairEncoding:
    """The tokeniser for `read_gguf(path).token_table()`; control tokens become special tokens.

    >>> from thetax.data.text.byte_pair_encoding import BYTE
    >>> tokens = ["<end>", *sorted(BYTE), "lo"]
    >>> table = TokenTable("gpt2", "smollm", tokens, [("l", "o")], {"eos": 0}, [0], False, "")
    >>> gguf_tokeniser(table).tokens("lo<end>").tolist()
    [257, 0]
    """
    if table.kind != "gpt2" or table.split not in _SPLITS_DIGITS:
        known = " or ".join(_SPLITS_DIGITS)
        raise ValueError(
            f"gguf_tokeniser: the tokeniser is of kind {table.kind!r} with pre-tokeniser "
            f"{table.split!r}; only gpt2 with {known} is supported."
        )
    special_tokens = [table.tokens[i] for i in table.control_ids]
    return BytePairEncoding(
        table.tokens,
        table.merges,
        special_tokens=special_tokens,
        split_digits=_SPLITS_DIGITS[table.split],
    )
