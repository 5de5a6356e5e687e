"""The tokeniser in a GGUF file, if it is of byte pairs cut in a way that is known."""

from ..text.bytepairs import BytePairs
from .file import TokenTable

_DIGITS = {
    "gpt-2": False,
    "smollm": True,
}  # whether numbers are cut into digits, by the name of the way


def gguf_tokeniser(table: TokenTable) -> BytePairs:
    """The byte pairs of `read_gguf(path).token_table()`; tokens that stand for no text are its
    special pieces.

    >>> from thetax.data.text.bytepairs import BYTE
    >>> tokens = ["<end>", *sorted(BYTE), "lo"]
    >>> table = TokenTable("gpt2", "smollm", tokens, [("l", "o")], {"eos": 0}, [0], False, "")
    >>> gguf_tokeniser(table).tokens("lo<end>").tolist()
    [257, 0]
    """
    if table.kind != "gpt2" or table.split not in _DIGITS:
        known = " and ".join(_DIGITS)
        raise ValueError(
            f"gguf_tokeniser: the file has a tokeniser of kind {table.kind!r} that cuts as "
            f"{table.split!r}; byte pairs (gpt2) cut as {known} can be made."
        )
    special = [table.tokens[number] for number in table.control]
    return BytePairs(table.tokens, table.merges, special=special, digits=_DIGITS[table.split])
