"""R's data frames are read without R, and nothing but data frames is."""

import bz2
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax.data.io.bounded_read import Blob
from thetax.data.io.rda import read_rda

word = lambda value: struct.pack(">I", value)
END = word(254)


def text(value: str | None) -> bytes:
    return word(9) + (word(0xFFFFFFFF) if value is None else word(len(value)) + value.encode())


def symbol(name: str) -> bytes:
    return word(1) + text(name)


def strings(values, flags: int = 0) -> bytes:
    return word(16 | flags) + word(len(values)) + b"".join(map(text, values))


def integers(values, flags: int = 0) -> bytes:
    return word(13 | flags) + word(len(values)) + struct.pack(f">{len(values)}i", *values)


def reals(values, flags: int = 0) -> bytes:
    return word(14 | flags) + word(len(values)) + struct.pack(f">{len(values)}d", *values)


def factor(codes, levels) -> bytes:
    return integers(codes, 0x200) + word(0x402) + symbol("levels") + strings(levels) + END


def frame(**columns: bytes) -> bytes:
    body = word(19 | 0x200) + word(len(columns)) + b"".join(columns.values())
    return body + word(0x402) + symbol("names") + strings(list(columns)) + END


def rda(*, version: int = 2, **objects: bytes) -> bytes:
    head = f"RDX{version}\nX\n".encode() + word(version) + word(0x40000) + word(0x20300)
    head += word(5) + b"UTF-8" if version == 3 else b""
    return (
        head + b"".join(word(0x402) + symbol(name) + body for name, body in objects.items()) + END
    )


TABLE = rda(
    t=frame(
        size=reals([1.5, -2.0, 0.0]),
        count=integers([7, -(2**31), 9]),
        kind=factor([2, 1, 2], ["no", "yes"]),
        word=strings(["a", None, "c"]),
    )
)


@pytest.mark.parametrize("data", [TABLE, bz2.compress(TABLE)])
def test_a_table_with_every_kind_of_column(data):
    table = read_rda(Blob("t.rda", data))["t"]
    assert table["size"].tolist() == [1.5, -2.0, 0.0]
    np.testing.assert_array_equal(table["count"], [7, np.nan, 9])
    assert table["kind"].tolist() == ["yes", "no", "yes"]
    assert table["word"].tolist() == ["a", "NA", "c"]


def test_format_three_and_two_tables():
    data = rda(version=3, a=frame(x=reals([1.0])), b=frame(y=reals([2.0])))
    assert {name: list(table) for name, table in read_rda(Blob("t", data)).items()} == {
        "a": ["x"],
        "b": ["y"],
    }


def test_names_said_once_are_referred_to():
    """R writes a name in full once; later it writes its number."""
    first = frame(
        k=factor([1], ["u"]),
        m=integers([1], 0x200) + word(0x402) + word(255 | 2 << 8) + strings(["v"]) + END,
    )
    table = read_rda(Blob("t", rda(t=first)))["t"]
    assert table["k"].tolist() == ["u"]
    assert table["m"].tolist() == ["v"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"RDA2\nA\n", "is not an R data file"),
        (b"", "announces 5 bytes, but 0 are left"),
        (rda(t=word(3) + END), "R object of type 3"),  # a closure
        (rda(t=word(4) + END), "R object of type 4"),  # an environment
        (rda(t=reals([1.0])), "is not a data frame"),
        (rda(t=frame(x=reals([1.0]), y=reals([1.0, 2.0]))), "columns of different lengths"),
        (rda(t=frame(x=factor([3], ["a", "b"]))), "factor code outside its 2 levels"),
        (rda(t=word(14) + word(0x7FFFFFFF)), "announces 2,147,483,647 elements"),
        (rda(t=word(19) + word(0x7FFFFFFF)), "announces 2,147,483,647 elements"),
        (rda(t=word(255 | 9 << 8)), "refers to symbol 9 of 1"),
        (rda(t=(word(19) + word(1)) * 100_000), "nested more than 64 levels"),
        (rda(t=(word(0x202)) * 100_000), "nested more than 64 levels"),
    ],
)
def test_what_is_not_a_table_is_refused(data, says):
    with pytest.raises(ValueError, match=f"^bad.rda: .*{says}"):
        read_rda(Blob("bad.rda", data))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_tables_are_refused_or_read(data):
    damaged = bytearray(TABLE[: data.draw(st.integers(0, len(TABLE)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    said = "the file: "
    try:
        read_rda(Blob("the file", bytes(damaged)))
    except ValueError as error:
        said = str(error)
    assert said.startswith("the file: ")
    assert "Type-check" not in said
