"""The networks that commands open: by the name of one that can be fetched, or from a folder of
yours.
"""

from pathlib import Path

from ..data import fetch_model
from ..train import Network, load_pretrained


def open_network(model: str, *, known: str, kind: type, use: str) -> Network:
    """The network of a folder or file, or of the name `known`; its model must be of this kind for
    this use.
    """
    path = Path(model)
    if not path.exists() and model != known:
        raise ValueError(
            f"model={model!r} is neither a folder that is there nor {known!r}, the one that is "
            "fetched."
        )
    network = load_pretrained(path if path.exists() else fetch_model(model))
    if not isinstance(network.model, kind):
        came = network.config.get("model_type")
        raise ValueError(
            f"{model}: holds a {type(network.model).__name__} (model_type {came!r}); to {use}, "
            f"give a {kind.__name__}."
        )
    pieces = len(network.tokeniser)
    rows = len(network.model.embed.E)
    if pieces > rows:
        raise ValueError(
            f"{model}: its tokeniser has {pieces:,} pieces, but its model only {rows:,} vectors "
            "for them."
        )
    return network
