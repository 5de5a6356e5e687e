"""The recipes whose networks `thetax tune` can search: for each its data, how a network is made,
and the space.

`@tunable(space)` registers a function of a key that gives a `Task`; its name is the recipe's, and
it parts the data from the same key in the same way, so that a tuned network is tested on what the
recipe tests on.
"""

import difflib
from collections.abc import Callable
from typing import NamedTuple

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ... import data
from ...layers import mean
from ...models import MLP
from ...train import Choice, Range, Task, binary_cross_entropy, binary_error_rate
from ...train.tuning.search_space import Space


class Tunable(NamedTuple):
    """A recipe that can be tuned: `task(key)`, and where to search unless told otherwise."""

    task: Callable[[PRNGKeyArray], Task]
    space: Space


TUNABLE: dict[str, Tunable] = {}


def tunable(**space: Range | Choice | int | float) -> Callable[[Callable], Callable]:
    """Registers a function `key -> Task` under its name, with the space to search."""

    def register(function: Callable[[PRNGKeyArray], Task]) -> Callable[[PRNGKeyArray], Task]:
        TUNABLE[function.__name__.strip("_").replace("_", "-")] = Tunable(function, space)
        return function

    return register


def find_tunable(name: str) -> Tunable:
    """The tunable recipe of that name, or a `ValueError` with the nearest names.

    >>> find_tunable("digts")
    Traceback (most recent call last):
    ValueError: There is nothing to tune called 'digts'; did you mean digits? Known: ...
    """
    if name in TUNABLE:
        return TUNABLE[name]
    near = difflib.get_close_matches(name, TUNABLE, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(
        f"There is nothing to tune called {name!r}; {hint}Known: {', '.join(sorted(TUNABLE))}."
    )


def network(inputs: int, outputs: int) -> Callable[..., MLP]:
    """How a multi-layer perceptron of these ends is made, whatever lies between them.

    >>> network(3, 1)((8, 8), dropout=0.1, key=jr.key(0)).body.layers[-1].W.shape
    (1, 8)
    """
    return lambda hidden, dropout, key: MLP.init(inputs, *hidden, outputs, dropout=dropout, key=key)


RATE = Range(3e-4, 3e-2, log=True)
DECAY = Range(1e-6, 1e-2, log=True)


@tunable(
    width=Choice(16, 32, 64),
    depth=Choice(1, 2),
    batch_size=Choice(16, 32, 64),
    learning_rate=RATE,
    weight_decay=DECAY,
    dropout=Range(0.0, 0.5),
    label_smoothing=Range(0.0, 0.2),
    epochs=Range(20, 100),
)
def digits(key: PRNGKeyArray) -> Task:
    """The 1,797 embedded digits; a fifth of them to test."""
    key_test, *_ = jr.split(key, 4)
    full = data.load("digits")
    train, test = data.split(full.train, 0.8, key=key_test, by=full.train[1])
    return Task(train, network(64, 10), test=test, classes=full.classes, name="digits")


@tunable(
    width=Choice(128, 256, 512),
    depth=Choice(1, 2),
    batch_size=Choice(128, 256),
    learning_rate=RATE,
    weight_decay=DECAY,
    dropout=Range(0.0, 0.5),
    label_smoothing=Range(0.0, 0.2),
    epochs=Range(5, 30),
)
def mnist(key: PRNGKeyArray) -> Task:
    """MNIST: 60,000 images, and 10,000 to test."""
    full = data.load("mnist")
    return Task(full.train, network(784, 10), test=full.test, classes=full.classes, name="mnist")


@tunable(
    width=Choice(5, 10, 20, 40),
    depth=Choice(1, 2),
    batch_size=Choice(64, 128, 256),
    learning_rate=Range(1e-3, 1e-1, log=True),
    weight_decay=DECAY,
    dropout=Range(0.0, 0.5),
    epochs=Range(10, 60),
)
def default(key: PRNGKeyArray) -> Task:
    """Who defaults on a credit card; three tenths to test. The inputs are standardised by the
    training part.
    """
    key_split, *_ = jr.split(key, 4)
    full = data.load("default")
    train, test = data.split(full.train, 0.7, key=key_split, by=full.train[1])
    scale = data.Standardise.fit(train[0])
    train = (scale(train[0]), train[1])
    test = (scale(test[0]), test[1])
    parts = {"objective": binary_cross_entropy, "metric": binary_error_rate, "pool": mean}
    return Task(
        train,
        network(train[0].shape[1], 1),
        test=test,
        classes=full.classes,
        name="default",
        **parts,
    )
