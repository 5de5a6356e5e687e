"""Pickles of arrays are interpreted without unpickling; anything else in them is refused."""

import os
import pickle
import pickletools

import numpy as np
import pytest
from python2_pickles import array, integer, links, matrix

from thetax.data.io.bounded_read import Blob
from thetax.data.io.pickled_arrays import CSRMatrix, read_pickled_arrays


def read(body: bytes):
    return read_pickled_arrays(Blob("a.pkl", b"\x80\x02" + body + b"."))


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i4", "i8", ">i2", "u1", "b1"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 3, 2)])
def test_arrays_of_all_kinds(dtype, shape):
    values = np.random.default_rng(0).integers(0, 2, size=shape)
    values = np.asarray(values).astype(dtype)
    got = read(array(values))
    np.testing.assert_array_equal(got, values)
    assert got.dtype == np.dtype(dtype).newbyteorder("=")
    assert got.dtype.isnative


def test_an_array_stored_by_columns():
    values = np.asfortranarray(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(read(array(values)), values)


def test_a_sparse_matrix():
    rows = CSRMatrix(
        (3, 4),
        np.array([1.0, 2.0, 3.0], np.float32),
        np.array([1, 3, 0], np.int32),
        np.array([0, 2, 2, 3], np.int32),
    )
    got = read(matrix(rows))
    np.testing.assert_array_equal(got.dense(), [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0]])


def test_neighbours():
    assert read(links({0: [1, 2], 1: [], 2: [0]})) == {0: [1, 2], 1: [], 2: [0]}


@pytest.mark.parametrize(
    "value", [[1, 2.5, "a", None, True], {"a": [1, {"b": 2}]}, (1, 2), [], {}, 2**40, -7]
)
def test_plain_values_as_pickle_reads_them(value):
    assert read_pickled_arrays(Blob("a", pickle.dumps(value, 2))) == value


def test_shared_values_are_shared():
    same = [1, 2]
    assert read_pickled_arrays(Blob("a", pickle.dumps([same, same], 2))) == [same, same]


class Hostile:
    """Its pickle calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_would_run_a_program_does_not(protocol, tmp_path):
    mark = tmp_path / "ran"
    attack = pickle.dumps([Hostile(os.system, f"touch {mark}")], protocol)
    with pytest.raises(ValueError, match=r"a\.pkl: (uses the|not readable)"):
        read_pickled_arrays(Blob("a.pkl", attack))
    assert not mark.exists()
    pickle.loads(attack)
    assert mark.exists()  # it was an attack


@pytest.mark.parametrize(
    "name", ["os system", "builtins eval", "numpy load", "numpy.core.multiarray fromfile", "x y"]
)
def test_names_that_arrays_do_not_need(name):
    module, function = name.split()
    body = f"c{module}\n{function}\n".encode() + b"U\x01a\x85R"
    with pytest.raises(ValueError, match=f"uses the name '{name}', which no array needs.*hostile"):
        read(body)


HOSTILE = {
    "an object array": array(np.zeros(2)).replace(b"f8", b"O8"),
    "a text array": array(np.zeros(2)).replace(b"f8", b"S8"),
    "a shape without its bytes": array(np.zeros(4)).replace(integer(4), integer(1 << 30), 1),
    "a negative shape": array(np.zeros(4)).replace(integer(4), integer(-4), 1),
    "an array without values": array(np.zeros(1)).split(b"R")[0] + b"R",
    "a name alone": b"cnumpy\nndarray\n",
    "state of a list": b"]}b",
    "state of a name": b"cnumpy\nndarray\n}b",
    "a call of a list": b"])R",
    "an instruction of extensions": b"\x82\x01",
    "a persistent object": b"U\x01aQ",
    "a value too many": b"K\x01K\x02",
    "nothing": b"",
    "a missing mark": b"K\x01t",
    "an append to a number": b"K\x01K\x02a",
    "an unknown place of the memo": b"h\x07",
    "a matrix whose arrays do not fit": matrix(
        CSRMatrix((2, 2), np.ones(1), np.array([5]), np.array([0, 1, 1]))
    ),
    "a matrix with rows that end before they begin": matrix(
        CSRMatrix((2, 2), np.ones(1), np.array([0]), np.array([0, 2, 1]))
    ),
    "a matrix whose first row begins late": matrix(
        CSRMatrix((2, 2), np.ones(2), np.array([0, 1]), np.array([1, 1, 2]))
    ),
    "rows inside out": b"](l",
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_and_damaged_files_are_value_errors(hostile):
    with pytest.raises(ValueError, match=r"^a\.pkl: "):
        read(HOSTILE[hostile])


def test_a_truncated_file_at_every_place():
    whole = b"\x80\x02" + array(np.arange(3)) + b"."
    for end in range(len(whole)):
        with pytest.raises(ValueError, match=r"^a\.pkl: "):
            read_pickled_arrays(Blob("a.pkl", whole[:end]))


def test_random_bytes_are_value_errors_or_plain_values():
    rng = np.random.default_rng(0)
    whole = bytearray(b"\x80\x02" + array(np.arange(3)) + b".")
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[rng.integers(2, len(whole))] = rng.integers(256)
        try:
            value = read_pickled_arrays(Blob("a.pkl", bytes(damaged)))
        except ValueError as error:
            value = str(error)
        plain = np.ndarray | list | dict | tuple | int | float | None
        assert isinstance(value, plain) or value.startswith("a.pkl: ")


def test_the_writer_of_this_test_writes_valid_pickles():
    for body in (array(np.eye(2)), links({0: [1]})):
        list(pickletools.genops(b"\x80\x02" + body + b"."))
