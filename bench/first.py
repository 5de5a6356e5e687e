"""One training step of a network for MNIST: `python -m bench.first thetax|torch [WEIGHTS.npz]`.

Prints the loss before and after the step. With a file of weights both libraries start from these
and omit dropout, so that their losses can be compared.
"""

import sys
from itertools import pairwise

import numpy as np

SIZES = (784, 256, 128, 10)
DROPOUT = (0.4, 0.3)
BATCH = 128


def batch() -> tuple[np.ndarray, np.ndarray]:
    """The batch."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH, SIZES[0]), np.float32), rng.integers(0, SIZES[-1], BATCH)


def weights() -> dict[str, np.ndarray]:
    """Initial weights W0, b0, W1, ..."""
    rng = np.random.default_rng(1)
    arrays = {}
    for i, (n, m) in enumerate(pairwise(SIZES)):
        arrays[f"W{i}"] = rng.standard_normal((m, n), np.float32) / np.float32(n**0.5)
        arrays[f"b{i}"] = np.zeros(m, np.float32)
    return arrays


def step_thetax(given: dict[str, np.ndarray]) -> tuple[float, float]:
    """By `fit`."""
    import jax.numpy as jnp
    import jax.random as jr
    import optax

    from thetax.layers import Chain, Linear, relu
    from thetax.models import MLP
    from thetax.train import Silent, cross_entropy, descend, fit

    if given:
        first, second, third = (
            Linear(jnp.asarray(given[f"W{i}"]), jnp.asarray(given[f"b{i}"])) for i in range(3)
        )
        model = MLP(Chain(first, relu, second, relu, third))
    else:
        model = MLP.init(*SIZES, dropout=DROPOUT, key=jr.key(0))
    xs, ys = batch()
    data = jnp.asarray(xs), jnp.asarray(ys, jnp.int32)
    iteration = descend(cross_entropy, optax.adam(1e-3))
    result = fit(
        iteration, model, data, epochs=1, batch_size=BATCH, key=jr.key(1), progress=Silent()
    )
    after = float(cross_entropy(result.model, data)) if given else 0.0
    return float(result.history["train loss"][0]), after


def step_torch(given: dict[str, np.ndarray]) -> tuple[float, float]:
    """By PyTorch in eager mode."""
    from .row import library

    torch = library("torch")
    parts = []
    for i, (n, m) in enumerate(pairwise(SIZES)):
        parts += [torch.nn.Linear(n, m)]
        if given:
            parts[-1].weight.data, parts[-1].bias.data = (
                torch.from_numpy(given[f"{name}{i}"]) for name in "Wb"
            )
        if i < len(DROPOUT):
            parts += [torch.nn.ReLU()] + ([] if given else [torch.nn.Dropout(DROPOUT[i])])
    model = torch.nn.Sequential(*parts).train()
    xs, ys = (torch.from_numpy(a) for a in batch())
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = torch.nn.functional.cross_entropy(model(xs), ys)
    loss.backward()
    optimiser.step()
    with torch.no_grad():
        after = torch.nn.functional.cross_entropy(model(xs), ys).item() if given else 0.0
    return loss.item(), after


if __name__ == "__main__":
    given = dict(np.load(sys.argv[2])) if len(sys.argv) > 2 else {}
    print(*{"thetax": step_thetax, "torch": step_torch}[sys.argv[1]](given))
