"""Downloading one file: streamed, resumable, verified by its checksum before it is renamed."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ... import files
from ...progress import progress

_CHUNK = 1 << 18
_TIMEOUT = 20.0  # seconds without data
_ATTEMPTS = 3

Opener = Callable[..., Any]  # urllib.request.urlopen, or a test double


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    limit: int,
    opener: Opener = urllib.request.urlopen,
) -> Path:
    """Downloads `url` to `path`, through the temporary file `path` + ".part".

    A broken connection is resumed at most twice; the partial file is kept, so the next call
    continues there. A file with the wrong checksum is deleted, and `ValueError` is raised.
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
            received = part.stat().st_size if part.exists() else 0
            if received <= before or attempt == _ATTEMPTS - 1:
                raise OSError(f"{getattr(error, 'reason', error)}") from error
    digest = files.sha256(part)
    if sha256 is not None and digest != sha256:
        part.unlink()
        raise ValueError(
            f"{path.name}: expected SHA-256 {sha256}; got {digest}. The file was deleted."
        )
    part.replace(path)
    return path


def _stream(url: str, part: Path, *, limit: int, opener: Opener) -> None:
    """Appends the missing bytes to `part`; starts again if the server does not support ranges."""
    offset = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "thetax", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        response = opener(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the partial file is complete or too long: start again
            raise
        with error:
            part.unlink()
        return _stream(url, part, limit=limit, opener=opener)
    with response:
        if not _resumes_at(response, offset):
            offset = 0
        length = response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdigit() else None
        _write(response, part, offset=offset, total=total, limit=limit)


def _resumes_at(response: Any, offset: int) -> bool:
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
    return response.status == 206 and start == str(offset)


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


def _write(response: Any, part: Path, *, offset: int, total: int | None, limit: int) -> None:
    if total is not None and total > limit:
        raise ValueError(
            f"{part.name}: the server announces {total:,} bytes; at most {limit:,} are allowed."
        )
    with (
        progress(f"fetching {part.stem} from {_host(response.url)}", total=total) as update,
        open(part, "ab" if offset else "wb") as file,
    ):
        while chunk := response.read(_CHUNK):
            offset += len(chunk)
            if offset > limit:
                raise ValueError(
                    f"{part.name}: the server sent more than the {limit:,} bytes allowed; aborted."
                )
            file.write(chunk)
            update(offset)
    if total is not None and offset < total:
        raise OSError(
            f"the connection ended after {offset:,} of {total:,} bytes; the next call resumes there"
        )
