"""`thetax embed`: sentence embeddings and their cosine similarities."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.markup import escape
from rich.table import Column, Table

from ..core import predict
from ..data import Tokeniser
from ..models import BERT, SentenceEncoder
from ..train import PretrainedModel
from ..train.io.safetensors_io import read_object
from .app import app, err, out, print_json
from .pretrained import open_network

BATCH_SIZE = 32
MAX_LENGTH = {"minilm": 256}  # published limits that the files do not contain


@app.command(name="embed")
def embed(text: str, /, *more: str, model: str = "minilm", json: bool = False) -> int:
    """Embed sentences as vectors of norm 1, and print their cosine similarities.

    Parameters
    ----------
    text
        Sentence; if it is the only one, its vector is printed as JSON.
    more
        More sentences; then a table of cosine similarities is printed.
    model
        Folder of a BERT with its tokeniser, in the layout of Hugging Face; or minilm (downloaded
        once, 84 MB).
    json
        Print one JSON object per sentence with its vector, and one with all similarities.
    """
    texts = [text, *more]
    for i, sentence in enumerate(texts, start=1):
        if not sentence.strip():
            raise ValueError(f"text {i} of {len(texts)} is empty. Give a sentence.")
    network = open_network(model, known="minilm", kind=BERT, use="embed sentences")
    max_length = max_sentence_length(network, MAX_LENGTH.get(model))
    rows = [
        _tokens(network.tokeniser, sentence, max_length, i)
        for i, sentence in enumerate(texts, start=1)
    ]
    vectors = np.concatenate(list(_vectors(SentenceEncoder(network.model), rows)))
    _show(texts, vectors, json=json)
    return 0


def max_sentence_length(network: PretrainedModel, published: int | None = None) -> int:
    """The maximal number of tokens of a sentence, including [CLS] and [SEP].

    Raises `ValueError` if the folder specifies another pooling than the mean of the tokens.
    """
    n_positions = len(network.model.positions.P)
    pooling = _settings(network.path / "1_Pooling" / "config.json")
    modes = [
        name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True
    ]
    if modes not in ([], ["pooling_mode_mean_tokens"]):
        raise ValueError(
            f"{network.path}: sets {', '.join(modes)}; only pooling_mode_mean_tokens is supported."
        )
    max_length = (
        _settings(network.path / "sentence_bert_config.json").get("max_seq_length")
        or published
        or n_positions
    )
    if type(max_length) is not int or max_length < 3:
        raise ValueError(
            f"{network.path}: max_seq_length must be an integer >= 3; got {max_length!r}."
        )
    return min(max_length, n_positions)


def _settings(path: Path) -> dict[str, Any]:
    return read_object(path, limit=1 << 20) if path.is_file() else {}


def _tokens(tokeniser: Tokeniser, text: str, max_length: int, number: int) -> list[int]:
    """[CLS] text [SEP], truncated; special tokens in the text are not parsed."""
    tokens = tokeniser.tokens(text, parse_special=False).tolist()
    if not tokens:
        raise ValueError(f"text {number} has no tokens. Give a sentence.")
    if len(tokens) > max_length - 2:
        err.print(
            f"[yellow]thetax:[/] text {number} has {len(tokens) + 2} tokens; it is truncated to "
            f"{max_length}."
        )
    return [tokeniser.piece_id("[CLS]"), *tokens[: max_length - 2], tokeniser.piece_id("[SEP]")]


def _vectors(model: SentenceEncoder, rows: list[list[int]]) -> Iterator[np.ndarray]:
    """The vectors in batches padded to powers of two, so that few programs are compiled."""
    embed_batch = jax.jit(predict)
    width = min(_next_power_of_2(max(map(len, rows))), len(model.bert.positions.P))
    for start in range(0, len(rows), BATCH_SIZE):
        batch = rows[start : start + BATCH_SIZE]
        padded = np.full((_next_power_of_2(len(batch)), width), -1, np.int32)
        for row, tokens in zip(padded, batch):
            row[: len(tokens)] = tokens
        padded[len(batch) :, 0] = 0  # dummy sentences of one token
        yield np.asarray(embed_batch(model, padded))[: len(batch)]


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _show(texts: list[str], vectors: np.ndarray, *, json: bool) -> None:
    cosines = vectors @ vectors.T
    if json:
        for text, vector in zip(texts, vectors.tolist()):
            print_json({"text": text, "vector": vector})
        return print_json({"cosines": cosines.tolist()})
    if len(texts) == 1:
        return print_json(vectors[0].tolist())
    table = Table("", *[Column(str(i), justify="right") for i in range(1, len(texts) + 1)])
    for i, (text, row) in enumerate(zip(texts, cosines), start=1):
        table.add_row(escape(f"{i}  {text}"), *[f"{cosine:.3f}" for cosine in row])
    out.print(table)
