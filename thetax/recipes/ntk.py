"""Ever wider networks on handwritten digits (§9.3): how near their tangent kernel comes to its
limit, and stays.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .. import data, tree
from ..core import Batch, Scalar, predict
from ..explain import Widths, infinite, lazy_training
from ..explain import ntk as tangent_kernel
from ..layers import Ensemble, tangent
from ..models import MLP
from ..train import Fit, average, descend, fit, restarts, squared_loss
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

CLASSES = 10
TESTED = 500
# of targets: more than the outputs at the start, which are chance, and such that a softmax can be
# made
SCALE = 4.0
LAW = tangent(weight=2**0.5, bias=0.1)


def targets(ys: Any) -> Float[np.ndarray, "n k"]:
    """Labels as numbers to be hit: 4 in their own output, 0 in the others, less the mean.

    >>> targets(np.array([0, 9]))[:, 0].round(2).tolist()
    [3.6, -0.4]
    """
    return SCALE * (np.eye(CLASSES)[np.asarray(ys)] - 1 / CLASSES)


@average
def label_error(prediction: Float[Array, " k"], y: Int[Array, ""]) -> Scalar:
    """The `squared_error` of outputs against `targets`, as an objective of labels."""
    return squared_loss(prediction, SCALE * (jax.nn.one_hot(y, CLASSES) - 1 / CLASSES))


class Centred(NamedTuple):
    """Pictures as rows less the mean picture, in units that make the mean square 1."""

    mean: Float[np.ndarray, " d"]
    size: float

    @classmethod
    def fit(cls, xs: Float[np.ndarray, "n h w"]) -> "Centred":
        """By the training pictures."""
        flat = xs.reshape(len(xs), -1)
        mean = flat.mean(axis=0)
        return cls(mean, float(np.sqrt(np.square(flat - mean).mean())))

    def __call__(self, part: Batch) -> Batch:
        """Pictures and their labels."""
        return (part[0].reshape(len(part[0]), -1) - self.mean) / self.size, part[1]


def apart(K: Any, L: Any) -> float:
    r"""$\frac{\|K - L\|}{\|L\|}$."""
    return float(jnp.linalg.norm(jnp.ravel(K - L)) / jnp.linalg.norm(jnp.ravel(L)))


@recipe
def ntk(
    job: Job,
    *,
    widths: tuple[int, ...] = (32, 100, 320, 1000),
    depth: int = 2,
    seeds: int = 3,
    examples: int = 64,
    steps: int = 100,
) -> Outcome:
    """Ever wider networks on digits: their tangent kernel nears its limit, and stays where it is in
    training.

    Networks in the tangent parametrisation descend the squared error of a few examples by plain
    steps, at a rate of one over the largest eigenvalue of the limit. The row of infinite width is
    the limit after as many steps.

    Parameters
    ----------
    widths
        Units of each hidden layer, from narrow to wide.
    depth
        Hidden layers.
    seeds
        Networks of each width, trained at once.
    examples
        Digits to train on.
    steps
        Steps of descent, each on all of them.
    """
    positive(depth=depth, seeds=seeds, examples=examples, steps=steps, width=min(widths, default=0))
    if len(set(widths)) < 2:
        raise ValueError(f"widths must be two at least, to compare; got {widths}.")
    key_split, key = jr.split(job.key)
    train, test, classes = _digits(examples, key=key_split)
    make = lambda width, key: MLP.init(64, *[width] * depth, CLASSES, initialiser=LAW, key=key)
    limit = infinite(make(8, key))
    Theta = limit.ntk(train[0])
    rate = float(examples / np.linalg.eigvalsh(np.asarray(Theta, np.float64))[-1])
    lazy = lazy_training(limit.ntk, train[0], targets(train[1]), rate=rate)
    wrong = lambda outputs: (
        100 * float(np.mean(np.asarray(outputs).argmax(axis=-1) != np.asarray(test[1])))
    )
    table = {}
    measured = []
    for width in sorted(set(widths)):
        job.say(f"width {width:,}")
        nets = Ensemble.init(partial(make, width), seeds, key=jr.fold_in(key, width))
        found = _descended(job, f"width-{width}", nets, train, rate=rate, steps=steps, key=key)
        measured.append([_measure(*pair, train[0], Theta) for pair in _pairs(found)])
        outputs = jax.vmap(lambda net: predict(net, test[0]))(found.model.members)
        table[f"width {width:,}"] = _row(*np.mean(measured[-1], axis=0)) | {
            "test error %": wrong(outputs)
        }
    distance, change, moved = np.moveaxis(np.array(measured), 2, 0)
    result = Widths(distance, change, moved, np.array(sorted(set(widths))))
    first = {
        "infinite width, mean of all": {"test error %": wrong(lazy(steps, test[0]))},
        "power of the width": _row(*result.powers),
    }
    model, start = (
        jax.tree.map(lambda a: a[0], nets.members) for nets in (found.model, found.start)
    )
    return Outcome(
        model,
        train,
        test,
        label_error,
        found.history,
        classes,
        first | table,
        found.reason,
        found.seconds,
        start=start,
        measured=result,
    )


def _digits(examples: int, *, key: PRNGKeyArray) -> tuple[Batch, Batch, tuple[str, ...]]:
    """Some digits to train on and others to test on, centred."""
    full = data.load("digits")
    if not CLASSES <= examples <= len(full.train[1]) - TESTED:
        raise ValueError(
            f"examples must lie between {CLASSES} and {len(full.train[1]) - TESTED}; got "
            f"{examples}."
        )
    train, rest = data.split(full.train, examples / len(full.train[1]), key=key, by=full.train[1])
    centred = Centred.fit(train[0])
    some = jax.tree.map(lambda a: a[:TESTED], rest)
    return *(jax.tree.map(jnp.asarray, centred(part)) for part in (train, some)), full.classes


def _descended(
    job: Job, name: str, nets: Ensemble, train: Batch, *, rate: float, steps: int, key: PRNGKeyArray
) -> Fit:
    iteration = restarts(descend(label_error, optax.sgd(rate)))
    return fit(
        iteration,
        nets,
        train,
        epochs=steps,
        batch_size=len(train[1]),
        key=key,
        run=job.part(name),
        progress=job.progress,
    )


def _pairs(found: Fit) -> list[tuple[Any, Any]]:
    """Each network at the start and at the end."""
    one = lambda nets, i: jax.tree.map(lambda a: a[i], nets.members)
    return [
        (one(found.start, i), one(found.model, i))
        for i in range(len(jax.tree.leaves(found.model)[0]))
    ]


def _measure(
    start: Any, end: Any, xs: Any, Theta: Float[Array, "n n"]
) -> tuple[float, float, float]:
    """How far the kernel of all outputs lies from its limit, changed, and how far the parameters
    moved.
    """
    K = tangent_kernel(start)(xs)
    K_T = tangent_kernel(end)(xs)
    moved = float(tree.norm(tree.axpy(-1.0, start, end)) / tree.norm(start))
    return apart(K, Theta[:, :, None, None] * jnp.eye(CLASSES)[None, None]), apart(K_T, K), moved


def _row(distance: float, change: float, moved: float) -> dict[str, float]:
    return {"kernel from its limit": distance, "kernel changed": change, "parameters moved": moved}
