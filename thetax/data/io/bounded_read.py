"""Reading and decompressing untrusted files within a size limit.

A file can be damaged or hostile: truncated, declaring more data than it holds, or a decompression
bomb. So nothing here decompresses more than `limit` bytes, and every exception of a parser becomes
a `ValueError` that names the file.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

LIMIT = 1 << 30  # default limit of the decompressed bytes of one file

_DECOMPRESSORS: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


class Blob(NamedTuple):
    """The bytes of a file, and its name for error messages."""

    name: str
    data: bytes


File: TypeAlias = str | Path | Blob


@contextmanager
def reading(name: str, kind: str) -> Iterator[None]:
    """Turns every exception of a parser into a `ValueError` that names the file.

    >>> with reading("a.gz", "a gzip file"):
    ...     _ = gzip.decompress(b"no")
    Traceback (most recent call last):
    ValueError: a.gz: not readable as a gzip file: Not a gzipped file (b'no'). Download it ...
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # a parser may raise anything on a hostile file
        if isinstance(error, ValueError) and str(error).startswith(f"{name}: "):
            raise
        reason = str(error) or type(error).__name__
        advice = "Download it again, or give an undamaged file."
        raise ValueError(f"{name}: not readable as {kind}: {reason}. {advice}") from error


def bounded(stream: io.BufferedIOBase | IO[bytes], *, name: str, limit: int) -> bytes:
    """The content of a stream; raises `ValueError` if it has more than `limit` bytes."""
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(
            f"{name}: unpacks to more than the {limit:,} bytes allowed; it was not unpacked."
        )
    return data


def contents(file: File, *, limit: int = LIMIT) -> Blob:
    """The bytes of a file, decompressed if it is gzip, bzip2 or xz (by its magic bytes).

    >>> contents(Blob("a.gz", gzip.compress(b"abc")))
    Blob(name='a.gz', data=b'abc')
    >>> contents(Blob("a.gz", gzip.compress(bytes(1000))), limit=999)
    Traceback (most recent call last):
    ValueError: a.gz: unpacks to more than the 999 bytes allowed; it was not unpacked.
    """
    name = file.name if isinstance(file, Blob) else str(file)
    with reading(name, "a file"), _opened(file) as stream:
        return Blob(name, bounded(stream, name=name, limit=limit))


def members(file: File, names: Collection[str], *, limit: int = LIMIT) -> dict[str, Blob]:
    """The named members of a zip, tar (compressed or not) or Debian archive, read in memory.

    `limit` bounds the decompressed bytes of all members, including those that are skipped.
    """
    name = file.name if isinstance(file, Blob) else str(file)
    with reading(name, "an archive"), _raw(file) as raw:
        head = raw.read(8)
        raw.seek(0)
        if head.startswith(b"PK"):
            found = _from_zip(raw, names, name=name, limit=limit)
        else:
            with _opened(_from_deb(raw, name=name) if head == b"!<arch>\n" else file) as stream:
                found = _from_tar(_Bounded(stream, name=name, limit=limit), names, name=name)
    missing = [wanted for wanted in names if wanted not in found]
    if missing:
        raise ValueError(
            f"{name}: has no member {missing[0]!r}, so it is not the expected archive."
        )
    return found


def matching_members(
    file: File, matches: Callable[[str, int], bool], *, limit: int = LIMIT
) -> dict[str, Blob]:
    """The members of a tar (compressed or not) or Debian archive for which
    `matches(name, size)` is true, read in memory.

    `limit` bounds the decompressed bytes of all members, including those that are skipped.
    """
    name = file.name if isinstance(file, Blob) else str(file)
    with reading(name, "an archive"), _raw(file) as raw:
        is_deb = raw.read(8) == b"!<arch>\n"
        raw.seek(0)
        with _opened(_from_deb(raw, name=name) if is_deb else file) as stream:
            bounded_stream = _Bounded(stream, name=name, limit=limit)
            found: dict[str, Blob] = {}
            with tarfile.open(fileobj=bounded_stream, mode="r|") as archive:
                for info in archive:
                    if info.isreg() and not info.issparse() and matches(info.name, info.size):
                        member = archive.extractfile(info)
                        data = member.read() if member else b""
                        found[info.name] = Blob(f"{name}: {info.name}", data)
    if not found:
        raise ValueError(f"{name}: has none of the wanted members, so it is another archive.")
    return found


def _raw(file: File) -> io.BufferedIOBase:
    return io.BytesIO(file.data) if isinstance(file, Blob) else open(file, "rb")


@contextmanager
def _opened(file: File) -> Iterator[io.BufferedIOBase]:
    """The file as a stream, decompressed if it is compressed."""
    with _raw(file) as raw:
        head = raw.read(6)
        raw.seek(0)
        decompress = next(
            (kind for magic, kind in _DECOMPRESSORS.items() if head.startswith(magic)), None
        )
        if decompress is None:
            yield raw
        else:
            with decompress(raw) as stream:
                yield stream


class _Bounded(io.BufferedIOBase):
    """A stream that raises `ValueError` after `limit` bytes."""

    def __init__(self, stream: io.BufferedIOBase, *, name: str, limit: int):
        self.stream = stream
        self.name = name
        self.limit = limit
        self.remaining = limit

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(self.remaining + 1 if size < 0 else min(size, self.remaining + 1))
        self.remaining -= len(data)
        if self.remaining < 0:
            raise ValueError(f"{self.name}: unpacks to more than the {self.limit:,} bytes allowed.")
        return data


def _from_zip(
    raw: io.BufferedIOBase, names: Collection[str], *, name: str, limit: int
) -> dict[str, Blob]:
    found: dict[str, Blob] = {}
    with zipfile.ZipFile(raw) as archive:
        for wanted in set(names) & set(archive.namelist()):
            with archive.open(wanted) as member:
                data = bounded(member, name=f"{name}: {wanted}", limit=limit)
            limit -= len(data)
            found[wanted] = Blob(f"{name}: {wanted}", data)
    return found


def _from_tar(stream: _Bounded, names: Collection[str], *, name: str) -> dict[str, Blob]:
    found: dict[str, Blob] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for info in archive:
            if info.name not in names or not info.isreg() or info.issparse():
                continue
            member = archive.extractfile(info)
            found[info.name] = Blob(f"{name}: {info.name}", member.read() if member else b"")
            if len(found) == len(set(names)):
                break
    return found


def _from_deb(raw: io.BufferedIOBase, *, name: str) -> Blob:
    """The member `data.tar.*` of a Debian package.

    It is an `ar` archive: 60-byte headers with decimal sizes.
    """
    raw.seek(8)
    while len(header := raw.read(60)) == 60:
        member = header[:16].decode("ascii").strip().rstrip("/")
        size = int(header[48:58])
        if size < 0:
            raise ValueError(f"{name}: member {member!r} has the size {size}.")
        if member.endswith(".zst"):
            raise ValueError(f"{name}: is compressed with zstd, which is not supported.")
        if member.startswith("data.tar"):
            return Blob(name, raw.read(size))
        raw.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError(f"{name}: has no member data.tar, so it is not a Debian package.")
