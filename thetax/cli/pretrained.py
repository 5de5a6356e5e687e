"""Opening pretrained networks for commands: by name, or from a folder."""

from pathlib import Path

from ..data import fetch_model
from ..train import PretrainedModel, load_pretrained


def open_network(model: str, *, known: str, kind: type, use: str) -> PretrainedModel:
    """The network in a folder or file, or the one called `known`, which is downloaded.

    Raises `ValueError` unless its model is a `kind`, as `use` requires.
    """
    path = Path(model)
    if not path.exists() and model != known:
        raise ValueError(
            f"model={model!r} is neither an existing folder or file nor {known!r}, which would be "
            "downloaded."
        )
    network = load_pretrained(path if path.exists() else fetch_model(model))
    if not isinstance(network.model, kind):
        model_type = network.config.get("model_type")
        raise ValueError(
            f"{model}: contains a {type(network.model).__name__} (model_type {model_type!r}). To "
            f"{use}, give a {kind.__name__}."
        )
    n_pieces = len(network.tokeniser)
    vocab_size = len(network.model.embed.E)
    if n_pieces > vocab_size:
        raise ValueError(
            f"{model}: the tokeniser has {n_pieces:,} pieces, but the model has only "
            f"{vocab_size:,} embeddings."
        )
    return network
