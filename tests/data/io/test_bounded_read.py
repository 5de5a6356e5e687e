"""Whatever a file claims, no more is unpacked than was allowed, and the file is named."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile

import pytest

from thetax.data.io.bounded_read import Blob, contents, members

BOMB = 64 << 20


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def debian(files: dict[str, bytes], member: str = "data.tar.xz") -> bytes:
    out = b"!<arch>\n"
    packed = tarred(files, "w:xz")
    for name, data in {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", member: packed}.items():
        out += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
            + data
            + b"\n" * (len(data) % 2)
        )
    return out


ARCHIVES = [zipped, tarred, lambda files: tarred(files, "w"), debian]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_contents_unpacks_by_what_the_bytes_say(pack, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(pack(b"abc" * 100))
    assert contents(path).data == contents(Blob("a", pack(b"abc" * 100))).data == b"abc" * 100


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb_is_not_unpacked(pack):
    bomb = Blob("bomb", pack(bytes(BOMB)))
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"^bomb: unpacks to more than the 1,000,000 bytes allowed"
    ):
        contents(bomb, limit=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_cut_short_is_named(pack):
    with pytest.raises(ValueError, match=r"^short: not readable"):
        contents(Blob("short", pack(bytes(range(256)) * 50)[:-9]))


@pytest.mark.parametrize("make", ARCHIVES)
def test_members_come_out_and_only_those_asked_for(make):
    archive = Blob("a", make({"x/one": b"1", "x/two": b"2" * 999, "three": b""}))
    found = members(archive, ["x/two", "three"])
    assert {name: blob.data for name, blob in found.items()} == {"x/two": b"2" * 999, "three": b""}
    assert found["three"].name == "a: three"


@pytest.mark.parametrize("make", ARCHIVES)
def test_a_missing_member_is_named(make):
    with pytest.raises(ValueError, match=r"^a: has no member 'four'"):
        members(Blob("a", make({"one": b"1"})), ["one", "four"])


@pytest.mark.parametrize("make", ARCHIVES)
@pytest.mark.parametrize("wanted", ["big", "after"])
def test_an_archive_of_too_much_is_refused(make, wanted):
    """Too much is too much, whether it is wanted or only lies before what is wanted."""
    if wanted == "after" and make is zipped:
        pytest.skip("a zip file has an index, so nothing is passed over")
    archive = Blob("a", make({"big": bytes(5_000_000), "after": b"1"}))
    with pytest.raises(ValueError, match=r"^a: .*more than the 1,000,000 bytes allowed"):
        members(archive, [wanted], limit=1_000_000)


@pytest.mark.parametrize("make", ARCHIVES)
def test_an_archive_cut_short_is_refused(make):
    whole = make({"one": bytes(range(256)) * 40, "two": bytes(range(255, -1, -1)) * 40})
    for size in range(9, min(len(whole) - 200, 21_000), max(1, len(whole) // 23)):
        with pytest.raises(ValueError, match=r"^a: "):
            members(Blob("a", whole[:size]), ["one", "two"])


def test_a_zip_member_that_lies_about_its_size_is_refused():
    """The index says 10 bytes; the stream holds 5 million."""
    honest = bytearray(zipped({"one": bytes(5_000_000)}))
    at = honest.index(b"PK\x01\x02") + 24
    honest[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"^a: "):
        members(Blob("a", bytes(honest)), ["one"])


def test_links_in_a_tar_are_not_followed():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("one")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(ValueError, match=r"has no member 'one'"):
        members(Blob("a", buffer.getvalue()), ["one"])


@pytest.mark.parametrize("size", [-60, -1])
def test_a_debian_member_of_negative_size_does_not_turn_the_reader_round(size):
    """A reader that believed them would go back and read the same header for ever."""
    header = f"{'control':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode()
    with pytest.raises(ValueError, match=r"^a: .*size"):
        members(Blob("a", b"!<arch>\n" + header * 3), ["one"])


@pytest.mark.parametrize("size", [-512, -5120])
def test_a_tar_member_of_negative_size_does_not_turn_the_reader_round(size):
    tar = bytearray(tarred({"zero": b"", "one": b"1"}, "w"))
    tar[124:136] = size.to_bytes(12, "big", signed=True)
    tar[148:156] = b" " * 8
    tar[148:156] = b"%06o\0 " % sum(tar[:512])
    with pytest.raises(ValueError, match=r"^a: "):
        members(Blob("a", bytes(tar)), ["one"])


def test_a_debian_package_we_cannot_unpack_says_why():
    with pytest.raises(ValueError, match=r"^a: is compressed with zstd"):
        members(Blob("a", debian({"one": b"1"}, member="data.tar.zst")), ["one"])


def test_a_missing_file_is_missing_and_not_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "nowhere")
