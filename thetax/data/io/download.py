"""One file over https: streamed, resumed where the server allows it, checked before it gets its
name.
"""

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...progress import progress

_CHUNK = 1 << 18
_TIMEOUT = 20.0  # seconds of silence before a server counts as gone
_ATTEMPTS = 3

Opener = Callable[..., Any]  # urllib.request.urlopen, or what a test puts in its place


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    limit: int,
    opener: Opener = urllib.request.urlopen,
) -> Path:
    """Fetches `url` to `path` by way of `path` + ".part".

    A connection that breaks is taken up again where it broke, at most twice here and then by the
    next call, for the part that came is kept. A file of the wrong checksum is thrown away with a
    `ValueError`.
    """
    part = path.with_name(path.name + ".part")
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            _stream(url, part, limit=limit, opener=opener)
            break
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(
                    f"the server answered {error.code} {error.reason} for {path.name}"
                ) from None
        except (OSError, http.client.HTTPException) as error:
            came = part.stat().st_size if part.exists() else 0
            if came <= before or attempt == _ATTEMPTS - 1:
                raise OSError(f"{getattr(error, 'reason', error)}") from error
    got = digest(part)
    if sha256 is not None and got != sha256:
        part.unlink()
        raise ValueError(
            f"{path.name}: expected SHA-256 {sha256}, got {got}; the file was thrown away."
        )
    part.replace(path)
    return path


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stream(url: str, part: Path, *, limit: int, opener: Opener) -> None:
    """Appends to `part` what is missing of it; begins anew where the server does not do ranges."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "thetax", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = opener(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the part is as long as the file, or longer: begin anew
            raise
        with error:
            part.unlink()
        return _stream(url, part, limit=limit, opener=opener)
    with response:
        if not _continues(response, have):
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        _write(response, part, have=have, total=total, limit=limit)


def _continues(response: Any, have: int) -> bool:
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
    return response.status == 206 and start == str(have)


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


def _write(response: Any, part: Path, *, have: int, total: int | None, limit: int) -> None:
    if total is not None and total > limit:
        raise ValueError(
            f"{part.name}: the server announces {total:,} bytes; at most {limit:,} are expected."
        )
    with (
        progress(f"fetching {part.stem} from {_host(response.url)}", total=total) as update,
        open(part, "ab" if have else "wb") as file,
    ):
        while chunk := response.read(_CHUNK):
            have += len(chunk)
            if have > limit:
                raise ValueError(
                    f"{part.name}: more than the {limit:,} bytes expected came; given up."
                )
            file.write(chunk)
            update(have)
    if total is not None and have < total:
        raise OSError(
            f"the connection ended after {have:,} of {total:,} bytes; the next call resumes there"
        )
