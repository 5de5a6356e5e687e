"""Downloading archives with pip, npm or apt, without installing or building anything.

The clients use the user's configuration (index, mirror, proxy, certificates). A client that is not
installed raises `OSError`.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ...progress import progress

_TIMEOUT = 1800.0  # seconds
_POLL = 0.1  # seconds


def command(client: str, name: str, version: str, options: Sequence[str] = ()) -> list[str]:
    """The command that downloads one archive into the current folder.

    `options` are passed to pip, for instance the platform of a wheel that is only read.

    >>> command("apt", "r-cran-kernlab", "0.9-32-1")[1:]
    ['download', 'r-cran-kernlab']
    """
    if client == "pip":
        start = (
            [sys.executable, "-m", "pip"]
            if importlib.util.find_spec("pip")
            else [_executable("pip")]
        )
        only = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
        return [*start, "download", "--quiet", *only, *options, f"{name}=={version}"]
    if client == "npm":
        return [_executable("npm"), "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
    if client == "apt":  # each Debian release has one version of a package
        return [_executable("apt-get"), "download", name]
    raise ValueError(f"client must be 'pip', 'npm' or 'apt'; got {client!r}.")


def _executable(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise OSError(f"{program} is not on this machine")
    return path


def fetch_archive(
    client: str,
    name: str,
    version: str,
    *,
    work: Path,
    size: int | None = None,
    options: Sequence[str] = (),
) -> Path:
    """Downloads the archive into the empty folder `work`; returns its path."""
    arguments = command(client, name, version, options)
    label = f"fetching {name} {version} with {client}"
    with tempfile.TemporaryFile() as log:
        # TMPDIR: temporary files are in `work`, where their size shows the progress
        environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(work)}
        process = subprocess.Popen(
            arguments,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(process, work, label=label, size=size)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            log.seek(0)
            raise OSError(
                f"{client} failed with exit status {process.returncode}: {_tail(log.read())}"
            )
    archives = [path for path in sorted(work.iterdir()) if path.suffix in (".whl", ".tgz", ".deb")]
    if len(archives) != 1:
        raise OSError(f"{client} succeeded but left {len(archives)} archives instead of one")
    return archives[0]


def _wait(process: subprocess.Popen, work: Path, *, label: str, size: int | None) -> None:
    """Waits for the client; the progress is the size of the files in `work`."""
    start = time.monotonic()
    with progress(label, total=size) as update:
        while True:
            try:
                process.wait(_POLL)
                return
            except subprocess.TimeoutExpired:
                update(_folder_size(work))
            if time.monotonic() - start > _TIMEOUT:
                raise OSError(f"timed out after {_TIMEOUT:.0f} s; the client was stopped")


def _folder_size(work: Path) -> int:
    total = 0
    for folder, _, files in os.walk(work):
        for file in files:
            try:
                total += os.lstat(os.path.join(folder, file)).st_size
            except OSError:  # renamed or removed in the meantime
                continue
    return total


def _tail(log: bytes) -> str:
    """The end of a client's output on one line; error messages are usually last."""
    lines = [line.strip() for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [
        line for line in lines if line.startswith(("ERROR", "E:", "npm error", "npm ERR!"))
    ] or lines
    return "; ".join(errors[-3:])[-400:] or "no output"
