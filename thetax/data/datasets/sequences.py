r"""Synthetic sequence tasks as pure functions of a key: memory, nested structure, translation (§5).

`adding_problem` and `recall_task` test long-range memory, `listops` nested expressions,
`date_pairs` translation. Tokens are integers >= 0; -1 is padding at the end.
"""

import datetime

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

OPERATORS = ("[MAX", "[MIN", "[MED", "[SM")
LISTOPS = (*map(str, range(10)), *OPERATORS, "]")  # the names of the tokens of `listops`
_CLOSE = LISTOPS.index("]")
_NESTED_PROBABILITY = 0.25  # that an argument is itself an expression
# the range of `date_pairs`, in which two digits determine the year
FIRST_DAY = datetime.date(1950, 1, 1)
LAST_DAY = datetime.date(2049, 12, 31)
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def adding_problem(
    n: int, *, length: int, key: PRNGKeyArray
) -> tuple[Float[Array, "n {length} 2"], Float[Array, " n"]]:
    r"""The adding problem: the target is the sum of two marked numbers (Hochreiter & Schmidhuber
    1997).

    The numbers are uniform on $[0, 1]$; one in each half of the sequence is marked. Predicting
    always 1 has mean squared error $\frac16$. Departs: in experiment 4 of the paper the sum is
    scaled and the ends are marked too.

    >>> xs, ys = adding_problem(3, length=6, key=jr.key(0))
    >>> bool(jnp.allclose((xs[..., 0] * xs[..., 1]).sum(axis=1), ys))
    True
    """
    _expect_at_least("adding_problem", n=(n, 1), length=(length, 2))
    key_values, key_first, key_second = jr.split(key, 3)
    values = jr.uniform(key_values, (n, length))
    first = jr.randint(key_first, (n,), 0, length // 2)
    second = jr.randint(key_second, (n,), length // 2, length)
    times = jnp.arange(length)[None]
    marks = (times == first[:, None]) | (times == second[:, None])
    xs = jnp.stack([values, marks.astype(values.dtype)], axis=2)
    return xs, jnp.where(marks, values, 0).sum(axis=1)


def recall_task(
    n: int, *, length: int, n_symbols: int = 8, key: PRNGKeyArray
) -> tuple[Int[Array, "n _"], Int[Array, " n"]]:
    r"""Recalling the first symbol after `length` distractors; the target is that symbol.

    The tokens are the symbols $0, \dots, s - 1$, the distractors $s, \dots, 2s - 1$, and $2s$, the
    query at the end, with $s$ = `n_symbols`.

    >>> xs, ys = recall_task(2, length=4, n_symbols=3, key=jr.key(0))
    >>> xs.shape, bool((xs[:, 0] == ys).all()), bool((xs[:, 1:-1] >= 3).all()), int(xs[0, -1])
    ((2, 6), True, True, 6)
    """
    _expect_at_least("recall_task", n=(n, 1), length=(length, 1), n_symbols=(n_symbols, 2))
    key_symbol, key_distractors = jr.split(key)
    ys = jr.permutation(key_symbol, jnp.arange(n, dtype=jnp.int32) % n_symbols)
    distractors = jr.randint(
        key_distractors, (n, length), n_symbols, 2 * n_symbols, dtype=jnp.int32
    )
    query = jnp.full((n, 1), 2 * n_symbols, jnp.int32)
    return jnp.concatenate([ys[:, None], distractors, query], axis=1), ys


def listops(
    n: int, *, length: int = 60, max_depth: int = 4, max_arguments: int = 5, key: PRNGKeyArray
) -> tuple[Int[np.ndarray, "n {length}"], Int[np.ndarray, " n"]]:
    r"""ListOps: nested expressions of digits and their values (Nangia & Bowman 2018).

    The operators are MAX, MIN, MED (the median, rounded down) and SM (the sum modulo 10); `LISTOPS`
    has the names of the tokens. An expression has 2 to `max_arguments` arguments, each of them
    itself an expression with probability $\frac14$ up to the nesting depth `max_depth`. Expressions
    of more than `length` tokens are rejected.

    >>> xs, ys = listops(1, length=12, key=jr.key(3))
    >>> " ".join(LISTOPS[token] for token in xs[0] if token >= 0), int(ys[0])
    ('[MIN [MED 0 1 9 ] 2 0 ]', 0)
    """
    _expect_at_least(
        "listops",
        n=(n, 1),
        length=(length, 4),
        max_depth=(max_depth, 1),
        max_arguments=(max_arguments, 2),
    )
    rng = _generator(key)
    xs = np.full((n, length), -1, np.int32)
    ys = np.zeros(n, np.int32)
    for row in range(n):
        tokens, value = _expression(rng, max_depth, max_arguments)
        while len(tokens) > length:
            tokens, value = _expression(rng, max_depth, max_arguments)
        xs[row, : len(tokens)], ys[row] = tokens, value
    return xs, ys


def _expression(
    rng: np.random.Generator, max_depth: int, max_arguments: int
) -> tuple[list[int], int]:
    operator = int(rng.integers(len(OPERATORS)))
    tokens = [10 + operator]
    values = []
    for _ in range(rng.integers(2, max_arguments + 1)):
        if max_depth > 1 and rng.random() < _NESTED_PROBABILITY:
            inner, value = _expression(rng, max_depth - 1, max_arguments)
        else:
            value = int(rng.integers(10))
            inner = [value]
        tokens += inner
        values.append(value)
    compute = (max, min, lambda v: int(np.median(v)), lambda v: sum(v) % 10)[operator]
    return [*tokens, _CLOSE], compute(values)


def date_pairs(n: int, *, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct days from 1950 to 2049, written in various human formats and in ISO 8601.

    >>> human, iso = date_pairs(3, key=jr.key(0))
    >>> list(zip(human.tolist(), iso.tolist()))[2]
    ('1963, 25 july', '1963-07-25')
    """
    days = (LAST_DAY - FIRST_DAY).days + 1
    _expect_at_least("date_pairs", n=(n, 1))
    if n > days:
        raise ValueError(
            f"date_pairs: n must be at most {days}, the number of days from {FIRST_DAY} to "
            f"{LAST_DAY}; got {n}."
        )
    rng = _generator(key)
    dates = [FIRST_DAY + datetime.timedelta(int(i)) for i in rng.choice(days, n, replace=False)]
    to_array = lambda texts: np.array(texts, np.dtypes.StringDType())
    human = to_array([_random_format(date, rng) for date in dates])
    return human, to_array([date.isoformat() for date in dates])


def _random_format(day: datetime.date, rng: np.random.Generator) -> str:
    """The day in a randomly selected human format."""
    d = day.day
    m = day.month
    y = day.year
    short = f"{day.year % 100:02d}"
    month = _MONTHS[m - 1]
    week = _WEEK[day.weekday()]
    formats = (
        f"{d} {month} {y}",
        f"{month} {d}, {y}",
        f"{month[:3]} {d}, {y}",
        f"{week}, {d} {month} {y}",
        f"{week[:3]} {d} {month[:3]} {short}",
        f"the {d}{_ordinal(d)} of {month} {y}",
        f"{month} {d}{_ordinal(d)} {y}",
        f"{d:02d}/{m:02d}/{y}",
        f"{d}.{m}.{short}",
        f"{d}-{month[:3]}-{short}",
        f"{y}, {d} {month}",
    )
    text = formats[rng.integers(len(formats))]
    return (str, str.lower, str.upper)[rng.integers(3)](text)


def _ordinal(day: int) -> str:
    return "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator seeded by the key."""
    return np.random.Generator(np.random.Philox(seed=np.asarray(jr.key_data(key)).ravel().tolist()))


def _expect_at_least(where: str, **arguments: tuple[int, int]) -> None:
    for name, (value, minimum) in arguments.items():
        if value < minimum:
            raise ValueError(f"{where}: {name} must be an integer >= {minimum}; got {value}.")
