"""§7.0 and §7.1: functions of sets, invariant and equivariant under permutations."""

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from ...layers import Attention, SharedMLP, aggregate_set, tanh
from ...layers.sets import SET_AGGREGATIONS
from ...models import MLP, DeepSets
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .permutations import (
    CYCLE,
    all_orders,
    equivariance_error,
    invariance_error,
    matrix_of,
    values,
)

EXACT = 1e-12
IN_NUMPY = {
    "sum": lambda X: X.sum(axis=0),
    "mean": lambda X: X.mean(axis=0),
    "max": lambda X: X.max(axis=0),
    "min": lambda X: X.min(axis=0),
    "logsumexp": lambda X: logsumexp(X, axis=0),
}


def refuses(f, X) -> bool:
    """Whether the function refuses the set by a ValueError."""
    try:
        f(jnp.asarray(X))
    except ValueError:
        return True
    return False


@claim(
    "7.0-concat-naive",
    title="A network of the concatenated elements",
    kind="model",
    of=("models.MLP", "models.DeepSets"),
)
def concatenated(key, rng):
    r"""$\mathrm{MLP}([x_1, \dots, x_M])$ depends on the order of the elements, and takes sets of
    one size only.
    """
    M, d = 4, 3
    net = MLP.init(M * d, 16, 2, key=key)
    invariant = DeepSets.init(d, 2, latent=8, hidden=(8,), key=key)
    X, larger = rng.normal(size=(M, d)), rng.normal(size=(M + 1, d))
    orders = all_orders(M)
    change = lambda f: np.abs(values(f, X, orders) - np.asarray(f(jnp.asarray(X)))).max()
    return Verdict(
        at_least("largest change of the output over 24 orders", change(net), 1e-3),
        equal("it refuses a set of 5 elements", refuses(net, larger), True),
        refuted(at_least("Deep Sets: largest change", change(invariant), 1e-3)),
        equal("Deep Sets refuse a set of 5 elements", refuses(invariant, larger), False),
    )


@claim(
    "7.1-order-invariance",
    title="Functions that do not depend on the order",
    kind="definition",
    of=("layers.aggregate_set", "models.MLP"),
)
def invariant(key, rng):
    r"""$f$ is invariant if $f(PX) = f(X)$ for every permutation matrix $P$: sum, mean, maximum,
    minimum and logsumexp are; the first row, a partial sum and a network of the concatenated rows
    are not.
    """
    sets = {5: all_orders(5), 20: np.array([rng.permutation(20) for _ in range(50)])}
    checks = []
    for M, orders in sets.items():
        X = rng.normal(size=(M, 3))
        for how in SET_AGGREGATIONS:
            f = lambda X, how=how: aggregate_set(X, how)
            error = invariance_error(f, X, orders)
            checks += [
                at_most(f"{how} of {M} elements, {len(orders)} orders", error, EXACT),
                close(f"{how} of {M} elements", f(jnp.asarray(X)), IN_NUMPY[how](X)),
            ]
    X, orders = rng.normal(size=(5, 3)), sets[5]
    others = {
        "the first row": lambda X: X[0],
        "a partial sum": lambda X: jnp.cumsum(X, axis=0)[-2],
        "a network of the concatenated rows": MLP.init(15, 8, 2, key=key),
    }
    controls = [
        refuted(at_most(name, invariance_error(f, X, orders), EXACT)) for name, f in others.items()
    ]
    return Verdict(*checks, *controls)


@claim(
    "7.1-equivariance",
    title="Functions whose outputs permute as the inputs",
    kind="definition",
    of=("layers.tanh", "layers.Attention", "layers.SharedMLP"),
)
def equivariant(key, rng):
    r"""$f$ is equivariant if $f(PX) = P f(X)$ for every permutation matrix $P$: $\tanh$ of every
    row, the subtraction of the mean, self-attention and a shared MLP are; sorting every column is
    not.
    """
    X, orders = rng.normal(size=(5, 4)), all_orders(5)
    functions = {
        "tanh": tanh,
        "X less its mean": lambda X: X - X.mean(axis=0, keepdims=True),
        "self-attention": Attention.init(4, 2, key=key),
        "a shared MLP": SharedMLP.init(4, 8, 3, key=key),
    }
    by_columns = lambda X: jnp.sort(X, axis=0)
    return Verdict(
        *(
            at_most(f"{name}, 120 orders", equivariance_error(f, X, orders), EXACT)
            for name, f in functions.items()
        ),
        refuted(at_most("columns sorted", equivariance_error(by_columns, X, orders), EXACT)),
        at_most("columns sorted: invariant", invariance_error(by_columns, X, orders), EXACT),
    )


@erratum(
    "7.1-equivariance",
    title="Definition 7.2: which side the permutation is on",
    printed=r"f(X) = P f(PX)",
    corrected=r"f(PX) = P f(X)",
    of=("layers.tanh",),
)
def wrong_side(rng):
    r"""For a cycle of three rows, which is not its own inverse, $P f(PX) = f(X)$ fails even for
    $\tanh$ of every row; $f(PX) = P f(X)$, that is $f(X) = P^\top f(PX)$, holds. Definition 7.5,
    for graphs, is printed with the same mistake.
    """
    X, P = rng.normal(size=(3, 2)), matrix_of(CYCLE)
    y, permuted = (np.asarray(tanh(jnp.asarray(rows))) for rows in (X, P @ X))
    swap = matrix_of(np.array([1, 0, 2]))
    swapped = np.asarray(tanh(jnp.asarray(swap @ X)))
    return Verdict(
        close("f(PX) = P f(X), a cycle", permuted, P @ y),
        close("f(X) = Pᵀ f(PX), a cycle", P.T @ permuted, y),
        close("an exchange of two rows satisfies both", swap @ swapped, y),
        printed=[close("P f(PX) = f(X), a cycle", P @ permuted, y, tolerance=1e-3)],
    )
