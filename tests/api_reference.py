"""Writes docs/api.md, the list of all public names, and the `__all__` of every top-level package.

    python tests/api_reference.py

The public names of a package are those that its `__init__.py` imports as `from .x import y as y`;
those of a module are its functions and classes without a leading underscore. Nothing is imported:
the sources are read.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "api.md"
PARTS = (
    "core",
    "tree",
    "data",
    "layers",
    "models",
    "train",
    "threat",
    "explain",
    "bayes",
    "certify",
    "attack",
    "plot",
    "recipes",
    "report",
    "claims",
    "cli",
)
HEAD = """\
# Public names

Every name that a package exports, with the first sentence of its documentation and a link to its
source. `make docs` writes this page. [The glossary](glossary.md) goes from the terms of the field
to these names.
"""


@dataclass(frozen=True)
class Entry:
    """A public name: where it is defined, and the first sentence of its documentation."""

    name: str
    file: Path
    summary: str


def source(part: str) -> Path:
    """The file whose `__all__` lists the public names of a part of the library."""
    package = ROOT / "thetax" / part / "__init__.py"
    return package if package.is_file() else ROOT / "thetax" / f"{part}.py"


def public_names(file: Path) -> list[str]:
    """The names that the file makes public, sorted as ruff sorts `__all__`."""
    names = set()
    module = ast.parse(file.read_text("utf-8"))
    for node in module.body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if _exported(file, node, alias)}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif file.name != "__init__.py":
            names |= set(_targets(node))
    return sorted((name for name in names if not name.startswith("_")), key=_order)


def _exported(file: Path, node: ast.ImportFrom, alias: ast.alias) -> bool:
    """Whether an import is `from .x import y as y`, and y is no module."""
    if file.name != "__init__.py" or not node.level or alias.asname != alias.name:
        return False
    folder = _module(file, node).parent
    is_module = (folder / f"{alias.name}.py").is_file() or (folder / alias.name).is_dir()
    return node.module is not None or not is_module


def _order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _targets(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if name != "__all__"]


def _module(file: Path, node: ast.ImportFrom) -> Path:
    """The file that a relative import reads."""
    folder = file.parent
    for _ in range(node.level - 1):
        folder = folder.parent
    path = folder.joinpath(*(node.module or "").split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def find(file: Path, name: str) -> Entry:
    """Follows the imports of a name to its definition."""
    text = file.read_text("utf-8")
    body = ast.parse(text).body
    for node, following in zip(body, [*body[1:], None]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) != name:
                    continue
                if not node.level:
                    return Entry(name, file, f"The same as `{node.module}.{alias.name}`.")
                return find(_module(file, node), alias.name)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return Entry(name, file, first_sentence(ast.get_docstring(node) or ""))
        elif name in _targets(node):
            return Entry(name, file, first_sentence(_comment(text.split("\n"), node, following)))
    raise LookupError(f"{file} does not define {name}")


def _comment(lines: list[str], node: ast.stmt, following: ast.stmt | None) -> str:
    """What documents an assignment: a string after it, else a comment beside or above it."""
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    beside = re.search(r"\s# (?!type:|noqa)(.*)", lines[(node.end_lineno or node.lineno) - 1])
    if beside:
        return beside.group(1)
    above: list[str] = []
    at = node.lineno - 2
    while at >= 0 and lines[at].startswith("# "):
        above.insert(0, lines[at][2:])
        at -= 1
    return " ".join(above)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, on one line.

    >>> first_sentence("Adds two\\nnumbers. They may be complex.")
    'Adds two numbers.'
    """
    paragraph = " ".join(re.split(r"\n\s*\n", text.strip())[0].split())
    return re.split(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<! al\.) ", paragraph)[0]


def entries(part: str) -> list[Entry]:
    """The public names of a part of the library."""
    return [find(source(part), name) for name in public_names(source(part))]


def page() -> str:
    """The text of docs/api.md."""
    lines = [HEAD]
    for part in PARTS:
        lines.append(f"## thetax.{part}\n")
        for entry in entries(part):
            link = f"../{entry.file.relative_to(ROOT).as_posix()}"
            lines.append(f"- [`{entry.name}`]({link}): {entry.summary}")
        lines.append("")
    return "\n".join(lines)


def with_exports(file: Path) -> str:
    """The source of a file with an `__all__` of its public names."""
    text = file.read_text("utf-8")
    names = "".join(f'    "{name}",\n' for name in public_names(file))
    exports = f"__all__ = [\n{names}]\n"
    if re.search(r"^__all__ = ", text, flags=re.MULTILINE):
        return re.sub(r"^__all__ = \[[^\]]*\]\n", exports, text, count=1, flags=re.MULTILINE)
    imports = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    lines = text.split("\n")
    at = imports[-1].end_lineno or imports[-1].lineno
    return "\n".join([*lines[:at], "", exports.rstrip("\n"), *lines[at:]])


if __name__ == "__main__":
    for part in PARTS:
        file = source(part)
        text = with_exports(file)
        if text != file.read_text("utf-8"):
            file.write_text(text, "utf-8")
    PAGE.write_text(page(), "utf-8")
