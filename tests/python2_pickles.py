"""Pickles of arrays as Python 2 and its NumPy wrote them, instruction by instruction."""

import struct

import numpy as np

from thetax.data.io.pickled_arrays import CSRMatrix


def integer(n: int) -> bytes:
    return b"J" + struct.pack("<i", n)


def text(data: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(data)) + data


def array(values: np.ndarray) -> bytes:
    """The instructions for an array, as Python 2 wrote them."""
    kind = f"{values.dtype.kind}{values.dtype.itemsize}".encode()
    by_columns = values.ndim > 1 and values.flags.f_contiguous and not values.flags.c_contiguous
    order = {"=": b"<", "|": b"|"}.get(values.dtype.byteorder, values.dtype.byteorder.encode())
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + integer(0)
        + b"\x85U\x01b\x87R("
        + integer(1)
        + b"("
        + b"".join(integer(n) for n in values.shape)
        + b"tcnumpy\ndtype\nU"
        + bytes([len(kind)])
        + kind
        + b"K\x00K\x01\x87R(K\x03U\x01"
        + order
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + (b"\x88" if by_columns else b"\x89")
        + text(values.tobytes(order="F" if by_columns else "C"))
        + b"tb"
    )


def matrix(rows: CSRMatrix) -> bytes:
    shape = integer(rows.shape[0]) + integer(rows.shape[1]) + b"\x86"
    return (
        b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(U\x06_shape"
        + shape
        + b"U\x04data"
        + array(rows.data)
        + b"U\x07indices"
        + array(rows.indices)
        + b"U\x06indptr"
        + array(rows.indptr)
        + b"ub"
    )


def links(neighbours: dict[int, list[int]]) -> bytes:
    items = b"".join(
        integer(node) + b"](" + b"".join(map(integer, others)) + b"e"
        for node, others in neighbours.items()
    )
    return b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(" + items + b"u"
