"""The recipes that `thetax tune` can tune: their data, model and search space.

`@tunable(space)` registers a function from a key to a `TuningTask` under the name of its recipe.
Both make the same split from the same key, so that they use the same test set.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import PRNGKeyArray

from ... import data
from ...check import suggest
from ...layers import mean_output
from ...models import MLP
from ...train import Choice, Range, TuningTask, binary_cross_entropy, binary_error_rate
from ...train.tuning.search_space import Space
from ..shared.splits import split_default, split_digits


class Tunable(NamedTuple):
    """A recipe that can be tuned: `task(key)`, and the default search space."""

    task: Callable[[PRNGKeyArray], TuningTask]
    space: Space


TUNABLE: dict[str, Tunable] = {}  # The tunable recipes by name.


def tunable(**space: Range | Choice | int | float) -> Callable[[Callable], Callable]:
    """Registers a function `key -> TuningTask` under its name, with its search space."""

    def register(
        function: Callable[[PRNGKeyArray], TuningTask],
    ) -> Callable[[PRNGKeyArray], TuningTask]:
        TUNABLE[function.__name__.strip("_").replace("_", "-")] = Tunable(function, space)
        return function

    return register


def find_tunable(name: str) -> Tunable:
    """The tunable recipe of this name; raises `ValueError` with similar names if there is none.

    >>> find_tunable("digts")
    Traceback (most recent call last):
    ValueError: There is no recipe to tune called 'digts'; did you mean digits? Recipes: ...
    """
    if name in TUNABLE:
        return TUNABLE[name]
    raise ValueError(
        f"There is no recipe to tune called {name!r}; {suggest(name, TUNABLE, n=1)}Recipes: "
        f"{', '.join(sorted(TUNABLE))}."
    )


def mlp_initialiser(inputs: int, outputs: int) -> Callable[..., MLP]:
    """A function of hidden widths, dropout and key that initialises a multi-layer perceptron.

    >>> import jax.random as jr
    >>> mlp_initialiser(3, 1)((8, 8), dropout=0.1, key=jr.key(0)).body.layers[-1].W.shape
    (1, 8)
    """
    return lambda hidden, dropout, key: MLP.init(inputs, *hidden, outputs, dropout=dropout, key=key)


LEARNING_RATE = Range(3e-4, 3e-2, log=True)
WEIGHT_DECAY = Range(1e-6, 1e-2, log=True)


@tunable(
    width=Choice(16, 32, 64),
    depth=Choice(1, 2),
    batch_size=Choice(16, 32, 64),
    learning_rate=LEARNING_RATE,
    weight_decay=WEIGHT_DECAY,
    dropout=Range(0.0, 0.5),
    label_smoothing=Range(0.0, 0.2),
    epochs=Range(20, 100),
)
def digits(key: PRNGKeyArray) -> TuningTask:
    """The 1,797 digits of scikit-learn, a fifth of them in the test set."""
    full, train, test = split_digits(key)
    return TuningTask(
        train, mlp_initialiser(64, 10), test=test, classes=full.classes, name="digits"
    )


@tunable(
    width=Choice(128, 256, 512),
    depth=Choice(1, 2),
    batch_size=Choice(128, 256),
    learning_rate=LEARNING_RATE,
    weight_decay=WEIGHT_DECAY,
    dropout=Range(0.0, 0.5),
    label_smoothing=Range(0.0, 0.2),
    epochs=Range(5, 30),
)
def mnist(key: PRNGKeyArray) -> TuningTask:
    """MNIST: 60,000 training and 10,000 test images."""
    full = data.load("mnist")
    return TuningTask(
        full.train, mlp_initialiser(784, 10), test=full.test, classes=full.classes, name="mnist"
    )


@tunable(
    width=Choice(5, 10, 20, 40),
    depth=Choice(1, 2),
    batch_size=Choice(64, 128, 256),
    learning_rate=Range(1e-3, 1e-1, log=True),
    weight_decay=WEIGHT_DECAY,
    dropout=Range(0.0, 0.5),
    epochs=Range(10, 60),
)
def default(key: PRNGKeyArray) -> TuningTask:
    """Credit card default, three tenths of it in the test set."""
    full, train, test = split_default(key)
    return TuningTask(
        train,
        mlp_initialiser(train[0].shape[1], 1),
        test=test,
        classes=full.classes,
        name="default",
        objective=binary_cross_entropy,
        metric=binary_error_rate,
        pool=mean_output,
    )
