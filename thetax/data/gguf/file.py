r"""Networks in GGUF, the file format of llama.cpp: metadata, then tensors, most of them in a few
bits a number.

No number of the header is trusted before it is held against the size of the file. The tensors stay
on disk until one is asked for, when the library `gguf` makes float32 of its blocks. Two things
differ from the same network as Hugging Face has it:

- Sizes are stored with the innermost first. Here they are turned round, so that a weight is (out,
  in).
- Rotary positions turn pairs of rows of $W_q$ and $W_k$ within each head. Hugging Face pairs row
  $i$ with $i + d/2$; the converter of llama.cpp puts the two next to each other, $2i$ and $2i + 1$,
  in files whose `general.architecture` is `llama`. `rotary_halves` undoes it for `attn_q` and
  `attn_k`. (Those of `qwen2` are not permuted.)
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.bounded_read import reading
from .header import LIMIT, Header, Info, aligned, apart, library

_CONTROL = 3  # the kind of a token that stands for no text


class Gguf(NamedTuple):
    """A network in a GGUF file."""

    metadata: dict[str, Any]  # numbers, strings, truth values, and lists of them
    tensors: Mapping[str, np.ndarray]  # float32, made from the file whenever one is asked for

    def token_table(self) -> "TokenTable":
        """What a tokeniser is made of."""
        return _token_table(self.metadata)


class TokenTable(NamedTuple):
    """The vocabulary of a network as a GGUF file has it."""

    kind: str  # "gpt2" for pieces of bytes, "llama" for those of SentencePiece
    split: (
        str  # how text is cut before it is pieced, such as "smollm"; "" where the file does not say
    )
    tokens: list[str]
    merges: list[tuple[str, str]]  # which two pieces become one, the first rule first
    special: dict[str, int]  # "bos", "eos", "unknown", "padding", as far as there are such
    control: list[int]  # the tokens that stand for no text
    add_bos: bool  # whether a text begins with the token "bos"
    chat: str  # a template in Jinja for messages; "" where there is none


def read_gguf(path: str | Path) -> Gguf:
    """The metadata of a GGUF file, and its tensors by name; of a folder, those of the one GGUF file
    in it.

    A file that is cut off, or announces more than it holds, is a `ValueError`. Needs
    `pip install 'thetax[text]'`.

    >>> import gguf, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tiny.gguf"
    >>> writer = gguf.GGUFWriter(path, "llama")
    >>> writer.add_uint32("llama.block_count", 1)
    >>> writer.add_tensor("output.weight", np.ones((2, 32), np.float32))
    >>> writer.write_header_to_file()
    >>> writer.write_kv_data_to_file()
    >>> writer.write_tensors_to_file()
    >>> writer.close()
    >>> metadata, tensors = read_gguf(path)
    >>> metadata
    {'general.architecture': 'llama', 'llama.block_count': 1}
    >>> {name: tensor.shape for name, tensor in tensors.items()}
    {'output.weight': (2, 32)}
    """
    library()
    path = _one(Path(path))
    with reading(str(path), "a GGUF file"):
        data = np.memmap(path, np.uint8, mode="r")
        header = Header(data[:LIMIT], str(path))
        count = header.begin()
        metadata = dict(header.distinct(header.number("u8"), header.pair))
        infos = dict(header.distinct(count, lambda: header.tensor(len(data))))
        start = aligned(header.place, metadata.get("general.alignment", 32))
        apart(infos, start, len(data), str(path))
    return Gguf(metadata, _Tensors(data, infos, start))


def rotary_halves(W: np.ndarray, *, heads: int) -> np.ndarray:
    r"""The rows of each head from the order of pairs to that of halves: row $2i + j$ becomes row
    $i + jd/2$.

    For the weights (heads × d, in), or biases, of queries and keys; of keys, `heads` is
    `head_count_kv`.

    >>> rotary_halves(np.array([0, 2, 1, 3]), heads=1).tolist()
    [0, 1, 2, 3]
    """
    return _ordered("rotary_halves", W, heads, pairs_first=True)


def rotary_pairs(W: np.ndarray, *, heads: int) -> np.ndarray:
    r"""The inverse of `rotary_halves`, as llama.cpp's converter does it: row $i + jd/2$ becomes row
    $2i + j$.

    >>> rotary_pairs(np.array([0, 1, 2, 3]), heads=1).tolist()
    [0, 2, 1, 3]
    """
    return _ordered("rotary_pairs", W, heads, pairs_first=False)


def _ordered(name: str, W: np.ndarray, heads: int, *, pairs_first: bool) -> np.ndarray:
    if heads < 1 or len(W) % (2 * heads):
        raise ValueError(
            f"{name}: {len(W)} rows do not divide into {heads} heads of pairs; give the heads of "
            "this W."
        )
    half = len(W) // heads // 2
    inner = (half, 2) if pairs_first else (2, half)
    return W.reshape(heads, *inner, *W.shape[1:]).swapaxes(1, 2).reshape(W.shape)


def _one(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise ValueError(
            f"{path}: has {len(files)} files that end in .gguf; give the folder of one, or the "
            "file."
        )
    return files[0]


class _Tensors(Mapping[str, np.ndarray]):
    """Tensors of a file, made when asked for."""

    def __init__(self, data: np.ndarray, infos: Mapping[str, Info], start: int):
        self.data, self.infos, self.start = data, infos, start

    def __getitem__(self, name: str) -> np.ndarray:
        gguf = library()
        info = self.infos[name]
        begin = self.start + info.offset
        kind = gguf.GGMLQuantizationType(info.kind)
        raw = np.asarray(self.data[begin : begin + info.size])
        plain = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}.get(kind.name)
        if plain:
            return (
                np.frombuffer(raw.tobytes(), plain)
                .astype(np.float32, copy=False)
                .reshape(info.shape)
            )
        try:
            rows = raw.reshape(-1, info.size // max(math.prod(info.shape[:-1]), 1))
            return (
                gguf.quants.dequantize(rows, kind)
                .astype(np.float32, copy=False)
                .reshape(info.shape)
            )
        except NotImplementedError:
            raise ValueError(
                f"Gguf: {name} is stored as {kind.name}, which cannot be made float32 here."
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)


def _rule(merge: Any) -> tuple[str, str, str]:
    return merge.partition(" ") if isinstance(merge, str) else ("", "", "")


def _token_table(metadata: Mapping[str, Any]) -> TokenTable:
    get = lambda name, default: metadata.get(f"tokenizer.ggml.{name}", default)
    tokens = get("tokens", None)
    merges = get("merges", [])
    kinds = get("token_type", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ValueError(
            "Gguf: the file has no list of tokens (tokenizer.ggml.tokens); its tokeniser is "
            "elsewhere."
        )
    pairs = [
        (first, second)
        for first, space, second in map(_rule, merges)
        if space and " " not in second
    ]
    if len(pairs) < len(merges):
        raise ValueError(
            "Gguf: a rule of tokenizer.ggml.merges does not name two pieces with a space between "
            "them."
        )
    special = {name: get(f"{name}_token_id", None) for name in ("bos", "eos", "unknown", "padding")}
    special = {name: token for name, token in special.items() if token is not None}
    wrong = {name: token for name, token in special.items() if token not in range(len(tokens))}
    if wrong or len(kinds) not in (0, len(tokens)):
        raise ValueError(
            f"Gguf: special tokens {wrong}, {len(kinds)} kinds of tokens for a list of "
            f"{len(tokens)}."
        )
    return TokenTable(
        kind=str(get("model", "")),
        split=str(get("pre", "")),
        tokens=tokens,
        merges=pairs,
        special=special,
        control=[token for token, kind in enumerate(kinds) if kind == _CONTROL],
        add_bos=bool(get("add_bos_token", False)),
        chat=str(metadata.get("tokenizer.chat_template", "")),
    )
