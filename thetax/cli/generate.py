"""`thetax generate`: text generation with a language model, streamed to the terminal."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import jax.random as jr
import numpy as np
from cyclopts import Parameter

from ..check import expect_count
from ..data import Tokeniser
from ..models import GPT, stream
from ..models.generation.decoding import check_sampling
from ..train import PretrainedModel
from .app import app, print_json
from .pretrained import open_network

BEGIN, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
# for str.translate: deletes control characters, which could manipulate the terminal
_CONTROL_CHARACTERS = {i: None for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"}
_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)(.*?)<\|im_end\|>", re.DOTALL)


@app.command(name="generate")
def generate(
    prompt: str,
    /,
    *,
    model: str = "smollm2",
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = 0.95,
    seed: int = 0,
    plain: Annotated[bool, Parameter(negative="--chat")] = False,
    json: bool = False,
) -> int:
    """Generate text: the answer of a chat model, or the continuation of a prompt.

    Parameters
    ----------
    prompt
        Question for a chat model, or beginning of a text.
    model
        Folder of a GPT with its tokeniser, in the layout of Hugging Face or as a GGUF file; or
        smollm2 (downloaded once, 93 MB).
    max_new_tokens
        Maximum number of tokens to generate.
    temperature
        Sampling temperature; 0 is greedy decoding.
    top_k
        Sample from the k most likely tokens only.
    top_p
        Sample from the smallest set of most likely tokens with at least this total probability.
    seed
        Random seed.
    plain
        Continue the prompt literally, without the chat template of the model.
    json
        Print one JSON object with the complete text.
    """
    _check_options(
        prompt, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p
    )
    network = open_network(model, known="smollm2", kind=GPT, use="generate text")
    prompt_tokens, end_tokens = encode_prompt(network, prompt, plain=plain)
    _check_length(network, len(prompt_tokens), max_new_tokens)
    greedy = temperature == 0
    tokens = stream(
        network.model,
        prompt_tokens,
        max_new_tokens=max_new_tokens,
        end_tokens=end_tokens,
        temperature=1.0 if greedy else temperature,
        top_k=top_k,
        top_p=top_p,
        key=None if greedy else jr.key(seed),
    )
    parts = network.tokeniser.decode_stream(_without(tokens, end_tokens))
    if json:
        print_json({"prompt": prompt, "text": "".join(parts)})
        return 0
    try:
        for part in parts:
            print(part.translate(_CONTROL_CHARACTERS), end="", flush=True)
    finally:  # ends the line after an interrupt too
        print(flush=True)
    return 0


def _check_options(
    prompt: str,
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> None:
    """Checks the options before the network is downloaded."""
    if not prompt.strip():
        raise ValueError("prompt is empty. Give a question or the beginning of a text.")
    expect_count("generate", max_new_tokens=max_new_tokens)
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"generate: temperature must be finite and >= 0; got {temperature}.")
    check_sampling("generate", 1.0, top_k, top_p)


def encode_prompt(
    network: PretrainedModel, prompt: str, *, plain: bool
) -> tuple[list[int], tuple[int, ...]]:
    """The tokens of the prompt, in the chat template of the model if any, and the end tokens.

    Special tokens in the user's text are not parsed.
    """
    tokeniser = network.tokeniser
    candidates = [
        network.config.get("eos_token_id"),
        *(tokeniser.piece_ids.get(piece) for piece in (TEXT_END, END)),
    ]
    vocab_size = len(network.model.embed.E)
    end_tokens = {i for i in candidates if isinstance(i, int) and 0 <= i < vocab_size}
    text = tokeniser.tokens(prompt, parse_special=False)
    if not plain and network.chat_template:
        text = np.concatenate(list(_chat(tokeniser, network.chat_template, text)))
    return text.tolist(), tuple(sorted(end_tokens))


def _chat(tokeniser: Tokeniser, template: str, question: np.ndarray) -> Iterator[np.ndarray]:
    """The tokens of a conversation in ChatML, the only supported chat template."""
    if BEGIN not in template or not {BEGIN, END} <= tokeniser.piece_ids.keys():
        raise ValueError(
            f"the chat template of this model is not ChatML ({BEGIN} ... {END}). Use --plain."
        )
    system = _SYSTEM.search(template)
    if system:
        yield tokeniser.tokens(f"{BEGIN}system\n{system[1]}{END}\n")
    yield tokeniser.tokens(f"{BEGIN}user\n")
    yield question
    yield tokeniser.tokens(f"{END}\n{BEGIN}assistant\n")


def _check_length(network: PretrainedModel, n_prompt: int, max_new_tokens: int) -> None:
    max_length = network.config.get("max_position_embeddings") or network.config.get("n_positions")
    if isinstance(max_length, int) and n_prompt + max_new_tokens > max_length:
        raise ValueError(
            f"generate: the model has a context of {max_length} tokens; got a prompt of {n_prompt} "
            f"tokens and max_new_tokens={max_new_tokens}. Shorten one of them."
        )


def _without(tokens: Iterable[int], end_tokens: tuple[int, ...]) -> Iterator[int]:
    for token in tokens:
        if token not in end_tokens:
            yield token
