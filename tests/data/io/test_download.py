"""Files over the web: whole and right, or not there; what broke off is taken up again."""

import hashlib

import pytest

from thetax.data.io.download import download

PAGE = bytes(range(256)) * 4000  # a megabyte
SUM = hashlib.sha256(PAGE).hexdigest()


@pytest.fixture
def get(web, tmp_path):
    web.pages["page"] = PAGE
    target = tmp_path / "page"

    def get(page: str = "page", *, sha256: str | None = SUM, limit: int = 2 << 20):
        return download(web.base + page, target, sha256=sha256, limit=limit)

    return get


def part(tmp_path):
    return tmp_path / "page.part"


def test_a_file_comes_whole(get, tmp_path):
    assert get().read_bytes() == PAGE
    assert not part(tmp_path).exists()


def test_a_broken_connection_is_taken_up_where_it_broke(get, web):
    web.cuts = [300_000, 200_000]
    assert get().read_bytes() == PAGE
    assert web.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_what_came_before_the_last_break_is_kept_for_the_next_call(get, web, tmp_path):
    web.cuts = [100_000, 100_000, 100_000]
    with pytest.raises(
        OSError,
        match="the connection ended after 300,000 of 1,024,000 bytes; the next call resumes",
    ):
        get()
    assert part(tmp_path).read_bytes() == PAGE[:300_000]
    assert get().read_bytes() == PAGE
    assert web.asked[-1] == "bytes=300000-"


def test_a_server_without_ranges_sends_all_again(get, web, tmp_path):
    part(tmp_path).write_bytes(PAGE[:1000])
    web.ranges = False
    assert get().read_bytes() == PAGE
    assert web.asked == ["bytes=1000-"]


def test_a_part_longer_than_the_file_is_begun_anew(get, web, tmp_path):
    part(tmp_path).write_bytes(PAGE + b"more")
    assert get().read_bytes() == PAGE
    assert web.asked == ["bytes=1024004-", None]


def test_a_wrong_checksum_says_both_and_leaves_nothing(get, tmp_path):
    with pytest.raises(ValueError, match=f"^page: expected SHA-256 {'0' * 64}; got {SUM}"):
        get(sha256="0" * 64)
    assert not part(tmp_path).exists()
    assert not (tmp_path / "page").exists()


def test_a_part_of_another_file_does_not_survive(get, web, tmp_path):
    part(tmp_path).write_bytes(b"x" * 1000)
    with pytest.raises(ValueError, match="expected SHA-256"):
        get()
    assert get().read_bytes() == PAGE


def test_a_missing_page(get):
    with pytest.raises(OSError, match="the server answered 404 Not Found for page"):
        get("other")


def test_a_page_beyond_all_expectation_is_not_taken(get):
    with pytest.raises(ValueError, match="announces 1,024,000 bytes; at most 1,000 are allowed"):
        get(limit=1000)


def test_nobody_there(tmp_path):
    with pytest.raises(OSError, match="refused"):
        download("http://127.0.0.1:9/page", tmp_path / "page", limit=1000)
