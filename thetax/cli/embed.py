"""`thetax embed`: what sentences mean, as vectors, and how near they are to one another."""

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
from ..train import Network
from ..train.io.safetensors_io import read_object
from .app import app, err, out, print_json
from .pretrained import open_network

BATCH = 32
PUBLISHED = {
    "minilm": 256
}  # the longest sentence its makers meant it for, which its files do not say


@app.command(name="embed")
def embed(text: str, /, *more: str, model: str = "minilm", json: bool = False) -> int:
    """Turn sentences into vectors of length 1, and tell the cosines between them.

    Parameters
    ----------
    text
        A sentence; alone, its vector is printed as JSON.
    more
        More of them: a table of cosines is printed.
    model
        The folder of a BERT with its tokeniser, in Hugging Face's layout; or minilm (fetched once,
        84 MB).
    json
        One JSON object a sentence, with its vector, and one with all cosines.
    """
    texts = [text, *more]
    if empty := [i for i, one in enumerate(texts, start=1) if not one.strip()]:
        raise ValueError(f"text {empty[0]} of {len(texts)} is empty; there is nothing to embed.")
    network = open_network(model, known="minilm", kind=BERT, use="embed sentences")
    most = longest(network, PUBLISHED.get(model))
    rows = [_tokens(network.tokeniser, one, most, i) for i, one in enumerate(texts, start=1)]
    vectors = np.concatenate(list(_vectors(SentenceEncoder(network.model), rows)))
    _show(texts, vectors, json=json)
    return 0


def longest(network: Network, published: int | None = None) -> int:
    """How many tokens are read of a sentence, with the marks around it; refuses a folder that asks
    for something else than the mean of the tokens.
    """
    places = len(network.model.positions.P)
    pooling = _settings(network.path / "1_Pooling" / "config.json")
    asked = [
        name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True
    ]
    if asked not in ([], ["pooling_mode_mean_tokens"]):
        raise ValueError(
            f"{network.path}: asks for {', '.join(asked)}; only the mean of the tokens can be "
            "taken."
        )
    own = (
        _settings(network.path / "sentence_bert_config.json").get("max_seq_length")
        or published
        or places
    )
    if type(own) is not int or own < 3:
        raise ValueError(
            f"{network.path}: max_seq_length is {own!r}; expected a whole number of at least 3."
        )
    return min(own, places)


def _settings(path: Path) -> dict[str, Any]:
    return read_object(path, limit=1 << 20) if path.is_file() else {}


def _tokens(tokeniser: Tokeniser, text: str, most: int, number: int) -> list[int]:
    """[CLS] text [SEP]; what a stranger wrote is text throughout."""
    inside = tokeniser.tokens(text, special=False).tolist()
    if not inside:
        raise ValueError(f"text {number} has no tokens; there is nothing to embed.")
    if len(inside) > most - 2:
        err.print(
            f"[yellow]thetax:[/] text {number} has {len(inside) + 2} tokens; the first {most} are "
            "read."
        )
    return [tokeniser.number("[CLS]"), *inside[: most - 2], tokeniser.number("[SEP]")]


def _vectors(model: SentenceEncoder, rows: list[list[int]]) -> Iterator[np.ndarray]:
    """Batches of one length, a power of two, so that few programs are compiled."""
    run = jax.jit(predict)
    width = min(_power(max(map(len, rows))), len(model.bert.positions.P))
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        filled = np.full((_power(len(batch)), width), -1, np.int32)
        for row, tokens in zip(filled, batch):
            row[: len(tokens)] = tokens
        filled[len(batch) :, 0] = 0  # a sentence of one token, for no one
        yield np.asarray(run(model, filled))[: len(batch)]


def _power(n: int) -> int:
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
