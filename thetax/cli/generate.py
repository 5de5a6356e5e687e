"""`thetax generate`: a language model that goes on with a text, or answers, word by word as they
come.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import jax.random as jr
import numpy as np
from cyclopts import Parameter

from ..data import Tokeniser
from ..models import GPT, stream
from ..train import Network
from .app import app, print_json
from .pretrained import open_network

BEGIN, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_UNSEEN = {
    i: None for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"
}  # what could command a terminal
_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)(.*?)<\|im_end\|>", re.DOTALL)


@app.command(name="generate")
def generate(
    prompt: str,
    /,
    *,
    model: str = "smollm2",
    tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = 0.95,
    seed: int = 0,
    plain: Annotated[bool, Parameter(negative="--chat")] = False,
    json: bool = False,
) -> int:
    """Let a language model answer, or go on with a text.

    Parameters
    ----------
    prompt
        A question, or the beginning of a text.
    model
        The folder of a GPT with its tokeniser, in Hugging Face's layout or as one GGUF file; or
        smollm2 (fetched once, 93 MB).
    tokens
        How many tokens it may write.
    temperature
        0 for the likeliest token each time; more for more variety.
    top
        Draw among so many of the likeliest tokens.
    mass
        Draw among the fewest tokens that hold this much of the probability.
    seed
        Another seed, another text.
    plain
        Go on with the prompt as it is, even if the model was trained to chat.
    json
        One JSON object with the text, at the end.
    """
    _check(prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p)
    network = open_network(model, known="smollm2", kind=GPT, use="generate text")
    begin, ends = prompted(network, prompt, plain=plain)
    _expect_room(network, len(begin), tokens)
    greedy = temperature == 0
    said = stream(
        network.model,
        begin,
        length=tokens,
        end=ends,
        temperature=1.0 if greedy else temperature,
        top_k=top_k,
        top_p=top_p,
        key=None if greedy else jr.key(seed),
    )
    parts = network.tokeniser.spell(_without(said, ends))
    if json:
        print_json({"prompt": prompt, "text": "".join(parts)})
        return 0
    try:
        for part in parts:
            print(part.translate(_UNSEEN), end="", flush=True)
    finally:  # an interrupt too leaves a whole line
        print(flush=True)
    return 0


def _check(
    prompt: str, *, tokens: int, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    """Before the download."""
    if not prompt.strip():
        raise ValueError("prompt is empty; say something.")
    if tokens < 1 or (top_k is not None and top_k < 1):
        raise ValueError(
            f"tokens and top count tokens and must be at least 1; got {tokens} and {top_k}."
        )
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a number from 0 on; got {temperature}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"mass is a probability, more than 0 and at most 1; got {top_p}.")


def prompted(network: Network, prompt: str, *, plain: bool) -> tuple[list[int], tuple[int, ...]]:
    """The tokens the model is to go on after, and those with which it ends.

    A model with a template for chat is asked as a user asks; what the user wrote is text
    throughout, whatever marks it imitates.
    """
    tokeniser = network.tokeniser
    ends = [
        network.config.get("eos_token_id"),
        *(tokeniser.numbers.get(mark) for mark in (TEXT_END, END)),
    ]
    stops = {end for end in ends if isinstance(end, int) and 0 <= end < len(network.model.embed.E)}
    text = tokeniser.tokens(prompt, special=False)
    if not plain and network.chat:
        text = np.concatenate(list(_chat(tokeniser, network.chat, text)))
    return text.tolist(), tuple(sorted(stops))


def _chat(tokeniser: Tokeniser, template: str, asked: np.ndarray) -> Iterator[np.ndarray]:
    """The conversation so far in ChatML, the one form of templates that is known."""
    if BEGIN not in template or not {BEGIN, END} <= tokeniser.numbers.keys():
        raise ValueError(
            f"this model's template for chat is not of the form {BEGIN} ... {END}; use --plain."
        )
    system = _SYSTEM.search(template)
    if system:
        yield tokeniser.tokens(f"{BEGIN}system\n{system[1]}{END}\n")
    yield tokeniser.tokens(f"{BEGIN}user\n")
    yield asked
    yield tokeniser.tokens(f"{END}\n{BEGIN}assistant\n")


def _expect_room(network: Network, count: int, tokens: int) -> None:
    most = network.config.get("max_position_embeddings") or network.config.get("n_positions")
    if isinstance(most, int) and count + tokens > most:
        raise ValueError(
            f"the model reads and writes at most {most} tokens, but the prompt has {count} and "
            f"{tokens} more are asked for; shorten one of them."
        )


def _without(said: Iterable[int], ends: tuple[int, ...]) -> Iterator[int]:
    for token in said:
        if token not in ends:
            yield token
