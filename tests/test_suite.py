"""The choice and the order of the tests."""

from types import SimpleNamespace

import pytest
import suite


class Item(SimpleNamespace):
    """What `suite` reads of a pytest item."""

    def get_closest_marker(self, name):
        return self.mark if name == "sampled" else None

    def add_marker(self, mark):
        self.slow = mark.name == "slow"


def cases(name, count, mark=None):
    return [Item(nodeid=f"tests/a.py::{name}[{i}]", mark=mark, slow=False) for i in range(count)]


def test_each_nth_case_stays_quick():
    items = (
        cases("f", 7, pytest.mark.sampled(3).mark)
        + cases("g", 2, pytest.mark.sampled(3).mark)
        + cases("h", 2)
    )
    suite.mark_samples(items)
    assert [item.slow for item in items] == [False, True, True, False, True, True, False] + [
        False,
        True,
    ] + [False] * 2


def test_failed_and_changed_tests_come_first():
    names = [
        "tests/x/test_a.py::f",
        "tests/x/test_b.py::f",
        "thetax/x/c.py::thetax.x.c",
        "tests/x/test_d.py::f[1]",
    ]
    items = [Item(nodeid=name) for name in names]
    place = lambda item: suite.order(
        item, {names[3]: True}, {"thetax/x/b.py", "thetax/x/c.py"}, "commit"
    )
    assert min(items, key=place).nodeid == names[3]
    assert {item.nodeid for item in sorted(items, key=place)[1:3]} == {names[1], names[2]}


def test_the_order_of_the_rest_rotates_with_the_commit():
    items = [Item(nodeid=f"tests/test_{i}.py::f") for i in range(20)]
    rest = lambda commit: sorted(items, key=lambda item: suite.order(item, {}, set(), commit))
    assert rest("1") != rest("2")
    assert rest("1") == rest("1")


def test_memory_of_this_process():
    assert suite.resident() > 2**20
