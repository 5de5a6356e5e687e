"""GPT-2 small and BERT-base on a GPU in bfloat16, against transformers with torch.compile.

Both sides train with Adam on the same tokens, with float32 weights and bfloat16 computation.
Decoding is greedy, with a KV cache on both sides. Nothing is run without a GPU.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax.core import predict
from thetax.models import (
    BERT,
    GPT,
    BERTPretraining,
    greedy,
    huggingface_bert_tasks,
    huggingface_gpt2,
)
from thetax.train import descend, log_loss, mixed_precision, token_cross_entropy

from .row import Row, library

LEARNING_RATE = 1e-4
MASK_RATE = 0.15
VOCAB_SIZES = {"GPT-2": 50_257, "BERT": 30_522}
N_NEW_TOKENS = 128
PEAK = 989e12  # operations per second of an H100 or H200 in bfloat16


def masked_loss(model: BERTPretraining, batch: Any, *, key: Any = None) -> Any:
    """Mean cross-entropy at the masked tokens, plus that of the next sentence."""
    tokens, targets = batch
    logits = predict(model, tokens)
    losses = jax.vmap(jax.vmap(log_loss))(logits.tokens, jnp.maximum(targets, 0))
    next_sentence = jax.vmap(log_loss)(
        logits.next_sentence, jnp.zeros(len(tokens), jnp.int32)
    ).mean()
    return jnp.where(targets >= 0, losses, 0).sum() / (targets >= 0).sum() + next_sentence


@dataclass(frozen=True, eq=False)
class Training:
    """A training step of a model, for one sequence length."""

    name: str
    batch: int
    length: int
    repeats: int = 4

    @cached_property
    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """Input tokens, and targets; -1 at positions without a target."""
        rng = np.random.default_rng(0)
        tokens = rng.integers(0, VOCAB_SIZES[self.name], (self.batch, self.length + 1)).astype(
            np.int32
        )
        if self.name == "GPT-2":
            return tokens[:, :-1], tokens[:, 1:]
        masked = rng.random((self.batch, self.length)) < MASK_RATE
        return tokens[:, :-1], np.where(masked, tokens[:, :-1], -1).astype(np.int32)

    @cached_property
    def peer(self) -> Any:
        """The model of transformers on the GPU."""
        torch = library("torch")
        transformers = library("transformers")
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        common: Any = {"attn_implementation": "sdpa"}
        if self.name == "GPT-2":
            config = transformers.GPT2Config(
                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, n_positions=1024, **common
            )
            return transformers.GPT2LMHeadModel(config).cuda().train()
        off: Any = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
        config = transformers.BertConfig(max_position_embeddings=1024, **off, **common)
        return transformers.BertForPreTraining(config).cuda().train()

    @cached_property
    def model(self) -> Any:
        """Our model with the same weights."""
        tensors = {name: tensor.cpu().numpy() for name, tensor in self.peer.state_dict().items()}
        if self.name == "GPT-2":
            like = jax.eval_shape(lambda: GPT.init(VOCAB_SIZES[self.name], key=jr.key(0)))
            return huggingface_gpt2.read(tensors, like)
        init = lambda: BERTPretraining.init(
            BERT.init(VOCAB_SIZES[self.name], max_length=1024, key=jr.key(0)), key=jr.key(1)
        )
        return huggingface_bert_tasks.read(tensors, jax.eval_shape(init))

    @cached_property
    def ours(self) -> list[Any]:
        """The compiled step, the state and the batch."""
        objective = token_cross_entropy if self.name == "GPT-2" else masked_loss
        iteration = descend(mixed_precision(objective), optax.adamw(LEARNING_RATE))
        step = jax.jit(
            lambda state, batch: iteration.step(state, batch, key=jr.key(0)), donate_argnums=0
        )
        return [
            step,
            iteration.init(jax.tree.map(jnp.copy, self.model)),
            jax.tree.map(jnp.asarray, self.tokens),
        ]

    @cached_property
    def theirs(self) -> tuple[Any, Any, Any, Any]:
        """The compiled model, the optimiser and the batch."""
        torch = library("torch")
        adam = torch.optim.AdamW(self.peer.parameters(), lr=LEARNING_RATE, fused=True)
        return (
            torch.compile(self.peer),
            adam,
            *(torch.tensor(a, dtype=torch.int64).cuda() for a in self.tokens),
        )

    def ours_once(self) -> float:
        """The loss of one step of ours."""
        step, state, batch = self.ours
        self.ours[1], info = step(state, batch)
        return info.loss

    def theirs_once(self) -> Any:
        """The loss of one step of theirs."""
        torch = library("torch")
        net, adam, tokens, targets = self.theirs
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            out = net(tokens)
        entropy = partial(torch.nn.functional.cross_entropy, ignore_index=-1)
        if self.name == "GPT-2":
            loss = entropy(out.logits.float().flatten(0, 1), targets.flatten())
        else:
            loss = entropy(out.prediction_logits.float().flatten(0, 1), targets.flatten())
            loss = loss + entropy(
                out.seq_relationship_logits.float(),
                torch.zeros(self.batch, dtype=torch.int64).cuda(),
            )
        loss.backward()
        adam.step()
        return loss.detach()

    def check(self) -> None:
        """Raises unless the losses of three steps agree."""
        for _ in range(3):
            np.testing.assert_allclose(
                float(self.ours_once()), float(self.theirs_once()), rtol=2e-2
            )

    def timed_ours(self) -> float:
        """Milliseconds per step."""
        start = time.perf_counter()
        for _ in range(self.repeats):
            loss = self.ours_once()
        jax.block_until_ready(loss)
        return 1e3 * (time.perf_counter() - start) / self.repeats

    def timed_theirs(self) -> float:
        """Milliseconds per step."""
        torch = library("torch")
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(self.repeats):
            self.theirs_once()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / self.repeats

    @property
    def operations(self) -> float:
        """Six operations per weight and token, and twelve per pair of tokens, channel and layer."""
        tokens = self.batch * self.length
        weights = sum(leaf.size for leaf in jax.tree.leaves(self.model))
        return tokens * (6 * weights + 12 * 12 * 768 * self.length)


@dataclass(frozen=True, eq=False)
class Decoding:
    """Generation of tokens by GPT-2 for a batch of prompts."""

    batch: int
    prompt: int = 64
    repeats: int = 1

    @cached_property
    def training(self) -> Training:
        """The models."""
        return Training("GPT-2", self.batch, self.prompt)

    @cached_property
    def program(self) -> Any:
        """Greedy decoding of all prompts, with the model in bfloat16."""
        model = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), self.training.model)

        def one(model, prompt):
            cell, state = model.decoder(prompt[:-1], max_length=self.prompt + N_NEW_TOKENS)
            return greedy(
                cell, state=state, start_token=prompt[-1], max_new_tokens=N_NEW_TOKENS
            ).tokens

        run = jax.jit(jax.vmap(one, in_axes=(None, 0)))
        return partial(run, model, jnp.asarray(self.training.tokens[0]))

    def timed_ours(self) -> float:
        """Milliseconds for all tokens."""
        start = time.perf_counter()
        jax.block_until_ready(self.program())
        return 1e3 * (time.perf_counter() - start)

    @cached_property
    def theirs(self) -> Callable[[], Any]:
        """The method `generate` of transformers, in bfloat16."""
        torch = library("torch")
        net = self.training.peer.to(torch.bfloat16).eval()
        prompt = torch.tensor(self.training.tokens[0], dtype=torch.int64).cuda()
        settings: Any = {
            "max_new_tokens": N_NEW_TOKENS,
            "min_new_tokens": N_NEW_TOKENS,
            "do_sample": False,
            "pad_token_id": 0,
        }
        return lambda: net.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)

    def timed_theirs(self) -> float:
        """Milliseconds for all tokens."""
        torch = library("torch")
        start = time.perf_counter()
        self.theirs()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    def check(self) -> None:
        """Raises unless most of the first tokens agree; in half precision rounding breaks ties."""
        ours = np.asarray(self.program())[:, :4]
        theirs = self.theirs().cpu().numpy()[:, self.prompt : self.prompt + 4]
        if np.mean(ours == theirs) < 0.75:
            raise ValueError(f"the texts differ: {ours[0].tolist()} against {theirs[0].tolist()}")


def describe() -> str:
    """A description of the work."""
    if jax.default_backend() != "gpu":
        return "GPT-2 small and BERT-base need a GPU; none is available."
    return (
        "Training steps of GPT-2 small and BERT-base, and generation of 128 tokens by GPT-2 after "
        "a prompt of 64."
    )


def rows() -> list[Row]:
    """Training with two sequence lengths, decoding with two batch sizes."""
    if jax.default_backend() != "gpu":
        return []
    steps = [
        Training(name, batch, length)
        for name in VOCAB_SIZES
        for batch, length in ((64, 512), (32, 1024))
    ]
    decodings = [Decoding(1), Decoding(16)]
    utilisation = lambda one: (
        lambda result: f"{1e2 * one.operations / (1e-3 * result.ours) / PEAK:.0f} % of the peak"
    )
    return [
        *[
            Row(
                f"{one.name}, {one.batch} by {one.length} tokens",
                "transformers, torch.compile",
                one.timed_ours,
                one.timed_theirs,
                "ms",
                one.check,
                pairs=5,
                target=1.2,
                remark=utilisation(one),
            )
            for one in steps
        ],
        *[
            Row(
                f"GPT-2 decoding, batch {one.batch}",
                "transformers, generate",
                one.timed_ours,
                one.timed_theirs,
                "ms",
                one.check,
                pairs=3,
                target=2.0,
            )
            for one in decodings
        ],
    ]
