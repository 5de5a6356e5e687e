"""Package clients as a way to data: pip, npm and apt fetch an archive; nothing is installed or
built.

The clients run as the user has them configured (index, mirror, proxy, certificates). A client that
is not on the machine is a source that did not answer.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...progress import progress

_TIMEOUT = 1800.0
_POLL = 0.1


def command(client: str, name: str, version: str) -> list[str]:
    """The command that leaves one archive in the current folder.

    >>> command("apt", "r-cran-kernlab", "0.9-32-1")[1:]
    ['download', 'r-cran-kernlab']
    """
    if client == "pip":
        start = (
            [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [_found("pip")]
        )
        only = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
        return [*start, "download", "--quiet", *only, f"{name}=={version}"]
    if client == "npm":
        return [_found("npm"), "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
    if client == "apt":  # each release of Debian has one version, perhaps another than ours
        return [_found("apt-get"), "download", name]
    raise ValueError(f"client={client!r} is not known; expected 'pip', 'npm' or 'apt'.")


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise OSError(f"{program} is not on this machine")
    return path


def fetch_archive(
    client: str, name: str, version: str, *, work: Path, size: int | None = None
) -> Path:
    """Lets the client fetch the archive into the empty folder `work`; gives its path."""
    words = command(client, name, version)
    label = f"fetching {name} {version} with {client}"
    with tempfile.TemporaryFile() as log:
        environment = {
            **os.environ,
            "LC_ALL": "C",
            "TMPDIR": str(work),
        }  # so that the file is seen growing
        process = subprocess.Popen(
            words,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _watch(process, work, label=label, size=size)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            log.seek(0)
            raise OSError(f"{client} ended with status {process.returncode}: {_tail(log.read())}")
    archives = [path for path in sorted(work.iterdir()) if path.suffix in (".whl", ".tgz", ".deb")]
    if len(archives) != 1:
        raise OSError(f"{client} ended well but left {len(archives)} archives instead of one")
    return archives[0]


def _watch(process: subprocess.Popen, work: Path, *, label: str, size: int | None) -> None:
    """Waits for the client; these clients hide their progress, so the growing files speak for
    it.
    """
    start = time.monotonic()
    with progress(label, total=size) as update:
        while True:
            try:
                process.wait(_POLL)
                return
            except subprocess.TimeoutExpired:
                update(_grown(work))
            if time.monotonic() - start > _TIMEOUT:
                raise OSError(f"no end after {_TIMEOUT:.0f} s; the client was stopped")


def _grown(work: Path) -> int:
    total = 0
    for folder, _, files in os.walk(work):
        for file in files:
            try:
                total += os.lstat(os.path.join(folder, file)).st_size
            except OSError:  # renamed or removed while we look
                continue
    return total


def _tail(log: bytes) -> str:
    """The last words of a client, on one line: what it complained of comes last."""
    lines = [line.strip() for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [
        line for line in lines if line.startswith(("ERROR", "E:", "npm error", "npm ERR!"))
    ] or lines
    return "; ".join(telling[-3:])[-400:] or "it said nothing"
