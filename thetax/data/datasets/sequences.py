r"""Sequences one can draw: small problems of memory, structure and translation as pure functions of
a key (§5).

`adding` and `recall` ask for what was said long ago, `listops` for the value of nested brackets,
`dates` for the same thing in other words. Tokens are whole numbers from 0, and -1 fills a short
sequence up at its end.
"""

import datetime

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

OPERATORS = ("[MAX", "[MIN", "[MED", "[SM")
LISTOPS = (*map(str, range(10)), *OPERATORS, "]")  # the names of the tokens of `listops`
_CLOSE = LISTOPS.index("]")
_NESTS = 0.25  # the chance that an argument is an expression itself
FIRST, LAST = (
    datetime.date(1950, 1, 1),
    datetime.date(2049, 12, 31),
)  # of `dates`: two digits tell the year
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


def adding(
    n: int, *, length: int, key: PRNGKeyArray
) -> tuple[Float[Array, "n {length} 2"], Float[Array, " n"]]:
    r"""Numbers uniform on $[0, 1]$, two of which are marked, one in each half; the target is the
    sum of the two.

    Who always says 1 errs by $\frac16$ in the mean square (Hochreiter & Schmidhuber 1997,
    experiment 4, where the sum is scaled and the ends are marked too).

    >>> xs, ys = adding(3, length=6, key=jr.key(0))
    >>> bool(jnp.allclose((xs[..., 0] * xs[..., 1]).sum(axis=1), ys))
    True
    """
    _expect("adding", n=(n, 1), length=(length, 2))
    key_values, key_one, key_two = jr.split(key, 3)
    values = jr.uniform(key_values, (n, length))
    one = jr.randint(key_one, (n,), 0, length // 2)
    two = jr.randint(key_two, (n,), length // 2, length)
    times = jnp.arange(length)[None]
    marks = (times == one[:, None]) | (times == two[:, None])
    return jnp.stack([values, marks.astype(values.dtype)], axis=2), jnp.where(marks, values, 0).sum(
        axis=1
    )


def recall(
    n: int, *, length: int, symbols: int = 8, key: PRNGKeyArray
) -> tuple[Int[Array, "n _"], Int[Array, " n"]]:
    r"""A symbol, then `length` others that do not matter, then the question which it was.

    The tokens are the symbols $0, \dots, s - 1$, as many that only distract, and $2s$, which asks.

    >>> xs, ys = recall(2, length=4, symbols=3, key=jr.key(0))
    >>> xs.shape, bool((xs[:, 0] == ys).all()), bool((xs[:, 1:-1] >= 3).all()), int(xs[0, -1])
    ((2, 6), True, True, 6)
    """
    _expect("recall", n=(n, 1), length=(length, 1), symbols=(symbols, 2))
    key_symbol, key_others = jr.split(key)
    ys = jr.permutation(key_symbol, jnp.arange(n, dtype=jnp.int32) % symbols)
    others = jr.randint(key_others, (n, length), symbols, 2 * symbols, dtype=jnp.int32)
    return jnp.concatenate(
        [ys[:, None], others, jnp.full((n, 1), 2 * symbols, jnp.int32)], axis=1
    ), ys


def listops(
    n: int, *, length: int = 60, depth: int = 4, arguments: int = 5, key: PRNGKeyArray
) -> tuple[Int[np.ndarray, "n {length}"], Int[np.ndarray, " n"]]:
    r"""Nested lists of digits under MAX, MIN, MED (the median, rounded down) and SM (the sum modulo
    10), and the digit each comes to (Nangia & Bowman 2018). `LISTOPS` has the names of the tokens.

    A list has 2 to `arguments` members, a member is a list itself with probability $\frac14$ unless
    that would nest deeper than `depth`, and what is longer than `length` tokens is drawn again.

    >>> xs, ys = listops(1, length=12, key=jr.key(3))
    >>> " ".join(LISTOPS[token] for token in xs[0] if token >= 0), int(ys[0])
    ('[MIN [MED 0 1 9 ] 2 0 ]', 0)
    """
    _expect("listops", n=(n, 1), length=(length, 4), depth=(depth, 1), arguments=(arguments, 2))
    draw = _generator(key)
    xs = np.full((n, length), -1, np.int32)
    ys = np.zeros(n, np.int32)
    for row in range(n):
        tokens, value = _expression(draw, depth, arguments)
        while len(tokens) > length:
            tokens, value = _expression(draw, depth, arguments)
        xs[row, : len(tokens)], ys[row] = tokens, value
    return xs, ys


def _expression(draw: np.random.Generator, depth: int, arguments: int) -> tuple[list[int], int]:
    operator = int(draw.integers(len(OPERATORS)))
    tokens = [10 + operator]
    values = []
    for _ in range(draw.integers(2, arguments + 1)):
        if depth > 1 and draw.random() < _NESTS:
            inner, value = _expression(draw, depth - 1, arguments)
        else:
            inner = [value := int(draw.integers(10))]
        tokens += inner
        values.append(value)
    compute = (max, min, lambda v: int(np.median(v)), lambda v: sum(v) % 10)[operator]
    return [*tokens, _CLOSE], compute(values)


def dates(n: int, *, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """Days from 1950 to 2049, no day twice, each as a person might write it, and as ISO 8601 has
    it.

    >>> people, iso = dates(3, key=jr.key(0))
    >>> list(zip(people.tolist(), iso.tolist()))[2]
    ('1963, 25 july', '1963-07-25')
    """
    days = (LAST - FIRST).days + 1
    _expect("dates", n=(n, 1))
    if n > days:
        raise ValueError(f"dates: there are {days} days from {FIRST} to {LAST}; n={n} is more.")
    draw = _generator(key)
    chosen = [FIRST + datetime.timedelta(int(day)) for day in draw.choice(days, n, replace=False)]
    texts = lambda rows: np.array(rows, np.dtypes.StringDType())
    return texts([_spoken(day, draw) for day in chosen]), texts([day.isoformat() for day in chosen])


def _spoken(day: datetime.date, draw: np.random.Generator) -> str:
    """One of the ways to write a day."""
    d = day.day
    m = day.month
    y = day.year
    short = f"{day.year % 100:02d}"
    month = _MONTHS[m - 1]
    week = _WEEK[day.weekday()]
    ways = (
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
    text = ways[draw.integers(len(ways))]
    return (str, str.lower, str.upper)[draw.integers(3)](text)


def _ordinal(day: int) -> str:
    return "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    """Chance for what is drawn on the host, a function of the key."""
    return np.random.Generator(np.random.Philox(seed=np.asarray(jr.key_data(key)).ravel().tolist()))


def _expect(name: str, **arguments: tuple[int, int]) -> None:
    for argument, (value, least) in arguments.items():
        if value < least:
            raise ValueError(f"{name}: {argument} must be at least {least}; got {value}.")
