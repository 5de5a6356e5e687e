"""Sequences that are drawn, each against a solution of its own: sums by loops, expressions by a
stack, dates by a calendar.
"""

import datetime
import re

import jax.random as jr
import numpy as np
import pytest

from thetax.data import LISTOPS, adding_problem, date_pairs, listops, recall_task

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def test_adding_marks_one_number_in_each_half():
    xs, ys = (np.asarray(part) for part in adding_problem(300, length=7, key=jr.key(0)))
    assert xs.shape == (300, 7, 2)
    assert set(np.unique(xs[..., 1])) == {0.0, 1.0}
    places = [np.flatnonzero(x[:, 1]) for x in xs]
    assert all(len(place) == 2 and place[0] < 3 <= place[1] for place in places)
    assert {int(p) for place in places for p in place} == set(
        range(7)
    )  # every place is marked sometimes
    np.testing.assert_allclose([x[place, 0].sum() for x, place in zip(xs, places)], ys, rtol=1e-6)


def test_adding_always_one_errs_by_a_sixth():
    """The variance of the sum of two uniform numbers is 1/6; its square's spread gives the error of
    the mean.
    """
    _, ys = adding_problem(20_000, length=4, key=jr.key(1))
    square = (np.asarray(ys, float) - 1) ** 2
    assert abs(square.mean() - 1 / 6) < 4 * square.std() / np.sqrt(len(square))


def test_recall_shows_asks_and_distracts():
    xs, ys = (np.asarray(part) for part in recall_task(60, length=9, n_symbols=3, key=jr.key(0)))
    assert xs.shape == (60, 11)
    np.testing.assert_array_equal(xs[:, 0], ys)
    assert np.bincount(ys).tolist() == [20, 20, 20]
    assert set(np.unique(xs[:, 1:-1])) == {3, 4, 5}
    assert (xs[:, -1] == 6).all()
    orders = {tuple(row) for row in xs[:, 1:-1].tolist()}
    assert len(orders) == 60  # 3⁹ are possible


def evaluated(tokens: list[str]) -> int:
    """The value of an expression by a stack, which knows nothing of how it was drawn."""
    median = lambda v: (sorted(v)[(len(v) - 1) // 2] + sorted(v)[len(v) // 2]) // 2
    operations = {"[MAX": max, "[MIN": min, "[MED": median, "[SM": lambda v: sum(v) % 10}
    stack: list = []
    for token in tokens:
        if token != "]":
            stack.append(token if token in operations else int(token))
            continue
        members: list[int] = []
        while not isinstance(stack[-1], str):
            members.append(stack.pop())
        stack.append(operations[stack.pop()](members))
    assert len(stack) == 1
    return stack[0]


def nesting(tokens: list[str]) -> int:
    return int(np.cumsum([token.startswith("[") - (token == "]") for token in tokens]).max())


def test_listops_come_to_their_value():
    xs, ys = listops(400, length=25, max_depth=3, max_arguments=4, key=jr.key(0))
    assert (xs.shape, xs.dtype, ys.dtype) == ((400, 25), np.int32, np.int32)
    lengths = (xs >= 0).sum(axis=1)
    assert all((row[:n] >= 0).all() and (row[n:] == -1).all() for row, n in zip(xs, lengths))
    texts = [[LISTOPS[token] for token in row if token >= 0] for row in xs]
    assert [evaluated(text) for text in texts] == ys.tolist()
    assert max(map(nesting, texts)) == 3
    assert {token for text in texts for token in text} == set(LISTOPS)
    assert np.bincount(ys, minlength=10).min() > 15
    counts = [
        len(re.sub(r"\[\w+|\]", "", " ".join(text)).split()) for text in texts if nesting(text) == 1
    ]
    assert (min(counts), max(counts)) == (2, 4)


def read(text: str) -> datetime.date:
    """The day that a person meant, by a reader of its own."""
    text = text.lower()
    weekday = re.match(r"(mon|tue|wed|thu|fri|sat|sun)", text)
    if found := re.fullmatch(r"(\d+)[/.](\d+)[/.](\d+)", text):
        day, month, year = map(int, found.groups())
    else:
        month = next(i + 1 for i, name in enumerate(MONTHS) if re.search(rf"\b{name}", text))
        numbers = [int(n) for n in re.findall(r"\d+", text)]
        year = next((n for n in numbers if n > 100), numbers[-1])
        day = next(n for n in numbers if n != year or numbers.count(n) > 1)
    meant = datetime.date(year if year > 99 else year + (1900 if year >= 50 else 2000), month, day)
    assert weekday is None or meant.strftime("%a").lower() == weekday[0]
    suffix = re.search(r"(\d+)(st|nd|rd|th)\b", text)
    endings = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
    assert suffix is None or suffix[2] == endings.get(day, "th")
    return meant


def test_dates_mean_what_they_say():
    people, iso = date_pairs(800, key=jr.key(0))
    assert [read(text).isoformat() for text in people.tolist()] == iso.tolist()
    assert len(set(iso.tolist())) == 800
    forms = {re.sub("[a-z]+", "a", re.sub(r"\d+", "1", text.lower())) for text in people.tolist()}
    assert len(forms) >= 9
    years = [int(day[:4]) for day in iso.tolist()]
    assert 1950 <= min(years) < 1955
    assert 2045 < max(years) <= 2049
    assert any(text.isupper() for text in people.tolist())


@pytest.mark.parametrize(
    "draw", [lambda key: listops(3, key=key), lambda key: date_pairs(3, key=key)]
)
def test_chance_is_that_of_the_key(draw):
    one = draw(jr.key(0))
    two = draw(jr.key(0))
    other = draw(jr.key(1))
    assert all((a == b).all() for a, b in zip(one, two))
    assert not (one[0] == other[0]).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: adding_problem(3, length=1, key=jr.key(0)),
            "adding_problem: length must be an integer >= 2; got 1",
        ),
        (
            lambda: recall_task(3, length=4, n_symbols=1, key=jr.key(0)),
            "recall_task: n_symbols must be an integer >= 2; got 1",
        ),
        (lambda: listops(0, key=jr.key(0)), "listops: n must be an integer >= 1; got 0"),
        (
            lambda: listops(1, length=3, key=jr.key(0)),
            "listops: length must be an integer >= 4; got 3",
        ),
        (
            lambda: date_pairs(40_000, key=jr.key(0)),
            "n must be at most 36525, the number of days from 1950-01-01 to 2049-12-31; got 40000",
        ),
    ],
)
def test_what_cannot_be_drawn(call, says):
    with pytest.raises(ValueError, match=says):
        call()
