"""Files that are whole or absent: written under a temporary name, flushed, then renamed."""

import hashlib
import os
from pathlib import Path


def write(path: Path, content: bytes | str) -> None:
    """Replaces the file at `path` at once: a reader, or a crash, sees the old content or the new,
    never a part.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:  # on a full disk a part would take what room there is
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Makes the names in a folder, and so a rename within it, survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
