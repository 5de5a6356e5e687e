r"""GGUF, the file format of llama.cpp: metadata and (usually quantised) tensors.

All sizes in the header are checked against the size of the file. A tensor stays on disk until it is
accessed; then the library `gguf` converts it to float32. Two things differ from Hugging Face:

- Shapes are stored with the innermost axis first. Here they are reversed, so a weight is (out, in).
- Rotary position encoding rotates pairs of rows of $W_q$ and $W_k$ in each head. Hugging Face pairs
  row $i$ with $i + d/2$; llama.cpp interleaves them as rows $2i$ and $2i + 1$ in files whose
  `general.architecture` is `llama`. `deinterleave_rotary` undoes this for `attn_q` and `attn_k`.
  (Those of `qwen2` are not permuted.)
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.bounded_read import reading
from .header import (
    MAX_HEADER_BYTES,
    Header,
    TensorInfo,
    check_layout,
    import_gguf,
    round_up,
)

_CONTROL = 3  # the type of control tokens


class Gguf(NamedTuple):
    """The content of a GGUF file."""

    metadata: dict[str, Any]  # numbers, strings, booleans, and lists of them
    tensors: Mapping[str, np.ndarray]  # float32, converted on access

    def token_table(self) -> "TokenTable":
        """The vocabulary and settings of the tokeniser."""
        return _read_token_table(self.metadata)


class TokenTable(NamedTuple):
    """The tokeniser data of a GGUF file."""

    kind: str  # "gpt2" for byte-level BPE, "llama" for SentencePiece
    split: str  # the pre-tokeniser, such as "smollm"; "" if not specified
    tokens: list[str]
    merges: list[tuple[str, str]]  # in the order they are applied
    special_ids: dict[str, int]  # of "bos", "eos", "unknown", "padding", if specified
    control_ids: list[int]  # ids of control tokens
    add_bos: bool  # whether texts begin with the token "bos"
    chat_template: str  # a Jinja template for chat messages; "" if there is none


def read_gguf(path: str | Path) -> Gguf:
    """Reads a GGUF file, or the only GGUF file in a folder: metadata and tensors by name.

    A truncated or inconsistent file raises `ValueError`. Needs `pip install 'thetax[text]'`.

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
    import_gguf()
    path = _find_file(Path(path))
    with reading(str(path), "a GGUF file"):
        data = np.memmap(path, np.uint8, mode="r")
        header = Header(data[:MAX_HEADER_BYTES], str(path))
        n_tensors = header.read_start()
        metadata = dict(header.distinct(header.number("u8"), header.entry))
        infos = dict(header.distinct(n_tensors, lambda: header.tensor(len(data))))
        start = round_up(header.position, metadata.get("general.alignment", 32))
        check_layout(infos, start, len(data), str(path))
    return Gguf(metadata, _Tensors(data, infos, start))


def deinterleave_rotary(W: np.ndarray, *, heads: int) -> np.ndarray:
    r"""Reorders the rows of each head from interleaved pairs to halves: row $2i + j$ becomes row
    $i + jd/2$.

    For the weights (heads × d, in) or biases of queries and keys; for keys, `heads` is
    `head_count_kv`.

    >>> deinterleave_rotary(np.array([0, 2, 1, 3]), heads=1).tolist()
    [0, 1, 2, 3]
    """
    return _reorder("deinterleave_rotary", W, heads, pairs_first=True)


def interleave_rotary(W: np.ndarray, *, heads: int) -> np.ndarray:
    r"""The inverse of `deinterleave_rotary`: row $i + jd/2$ becomes row $2i + j$.

    >>> interleave_rotary(np.array([0, 1, 2, 3]), heads=1).tolist()
    [0, 2, 1, 3]
    """
    return _reorder("interleave_rotary", W, heads, pairs_first=False)


def _reorder(name: str, W: np.ndarray, heads: int, *, pairs_first: bool) -> np.ndarray:
    if heads < 1 or len(W) % (2 * heads):
        raise ValueError(
            f"{name}: the number of rows must be a multiple of 2 * heads; got {len(W)} rows and "
            f"heads={heads}."
        )
    half = len(W) // heads // 2
    inner = (half, 2) if pairs_first else (2, half)
    return W.reshape(heads, *inner, *W.shape[1:]).swapaxes(1, 2).reshape(W.shape)


def _find_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise ValueError(
            f"{path}: contains {len(files)} .gguf files. Give the path of one of them."
        )
    return files[0]


class _Tensors(Mapping[str, np.ndarray]):
    """The tensors of a file, converted on access."""

    def __init__(self, data: np.ndarray, infos: Mapping[str, TensorInfo], start: int):
        self.data = data
        self.infos = infos
        self.start = start

    def __getitem__(self, name: str) -> np.ndarray:
        gguf = import_gguf()
        info = self.infos[name]
        start = self.start + info.offset
        kind = gguf.GGMLQuantizationType(info.kind)
        raw = np.asarray(self.data[start : start + info.size])
        dtype = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}.get(kind.name)
        if dtype:
            return (
                np.frombuffer(raw.tobytes(), dtype)
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
                f"Gguf: {name} is stored as {kind.name}, which cannot be converted to float32."
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)


def _split_merge(merge: Any) -> tuple[str, str, str]:
    return merge.partition(" ") if isinstance(merge, str) else ("", "", "")


def _read_token_table(metadata: Mapping[str, Any]) -> TokenTable:
    get = lambda name, default: metadata.get(f"tokenizer.ggml.{name}", default)
    tokens = get("tokens", None)
    merges = get("merges", [])
    kinds = get("token_type", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ValueError(
            "Gguf: the file has no list of tokens (tokenizer.ggml.tokens), so it contains no "
            "tokeniser."
        )
    pairs = [
        (first, second)
        for first, space, second in map(_split_merge, merges)
        if space and " " not in second
    ]
    if len(pairs) < len(merges):
        raise ValueError(
            "Gguf: an entry of tokenizer.ggml.merges is not two pieces separated by a space."
        )
    special = {name: get(f"{name}_token_id", None) for name in ("bos", "eos", "unknown", "padding")}
    special = {name: token for name, token in special.items() if token is not None}
    invalid = {name: token for name, token in special.items() if token not in range(len(tokens))}
    if invalid or len(kinds) not in (0, len(tokens)):
        raise ValueError(
            f"Gguf: inconsistent tokeniser of {len(tokens)} tokens: invalid special tokens "
            f"{invalid}, {len(kinds)} token types."
        )
    return TokenTable(
        kind=str(get("model", "")),
        split=str(get("pre", "")),
        tokens=tokens,
        merges=pairs,
        special_ids=special,
        control_ids=[token for token, kind in enumerate(kinds) if kind == _CONTROL],
        add_bos=bool(get("add_bos_token", False)),
        chat_template=str(metadata.get("tokenizer.chat_template", "")),
    )
