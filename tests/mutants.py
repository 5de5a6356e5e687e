"""The ways in which a formula of a module can be broken by one change: a sign, a constant, an
index, an argument.

Only what functions compute is changed. Docstrings, annotations, defaults, decorators, error
messages, guards (an `if` that ends in `raise`) and options of speed alone are left as they are.
"""

import ast
import functools
import gc
import random
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mutant(NamedTuple):
    """Bytes of a source that are replaced, and the function they belong to."""

    function: str  # the qualified name of a function or method of the module
    line: int
    kind: str
    start: int
    end: int
    new: str

    def applied(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def diff(self, source: bytes) -> tuple[str, str]:
        """The first changed line, before and after."""
        lines = zip(source.decode().splitlines(), self.applied(source).decode().splitlines())
        return next((old.strip(), new.strip()) for old, new in lines if old != new)


SIGNS = {ast.Add: (b"+", "-"), ast.Sub: (b"-", "+")}
FACTORS = {ast.Mult: (b"*", "/"), ast.Div: (b"/", "*")}
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}
EXCHANGED = {
    "sin": "cos",
    "cos": "sin",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "maximum": "minimum",
    "minimum": "maximum",
    "sum": "mean",
    "mean": "sum",
    "any": "all",
    "all": "any",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "floor": "ceil",
    "ceil": "floor",
    "log1p": "log",
    "expm1": "exp",
    "real": "imag",
    "imag": "real",
    "tril": "triu",
    "triu": "tril",
}
DROPPED = {"sqrt", "square", "abs", "exp", "log", "sigmoid", "softplus"}
SYMMETRIC = {
    "promote_types",
    "maximum",
    "minimum",
    "max",
    "min",
    "vdot",
    "isinstance",
    "allclose",
    "logaddexp",
    "add",
    "multiply",
}
UNCHANGED = {"warn", "isinstance", "getattr", "hasattr", "print"}  # calls that are no formulas
SPEED = {
    "precision",
    "unroll",
    "maxsize",
    "batch_size",
    "stacklevel",
    "preferred_element_type",
    "indent",
}
TOLERANCES = {"eps", "tiny"}  # a multiple of these is a tolerance, not a formula
ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant)


def mutants(source: bytes) -> list[Mutant]:
    """All of one module, in the order of its lines.

    >>> for found in mutants(b"def area(r):\\n    return 3.14 * r**2"):
    ...     print(found.kind, found.diff(b"def area(r):\\n    return 3.14 * r**2")[1])
    factor return 3.14 / r**2
    dropped return 3.14
    constant return 6.28 * r**2
    dropped return 3.14 * r
    constant return 3.14 * r**3
    """
    finder = Finder(source)
    finder.visit(ast.parse(source))
    return finder.found


def choose(found: list[Mutant], count: int, chance: random.Random) -> list[Mutant]:
    """Some of them, first the kind and then the place at random, so that no kind crowds out the
    others.
    """
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in found:
        by_kind.setdefault(mutant.kind, []).append(mutant)
    chosen = []
    while by_kind and len(chosen) < count:
        kind = chance.choice(sorted(by_kind))
        chosen.append(by_kind[kind].pop(chance.randrange(len(by_kind[kind]))))
        if not by_kind[kind]:
            del by_kind[kind]
    return chosen


class Finder(ast.NodeVisitor):
    """Goes through a module and collects what could be changed inside its functions."""

    def __init__(self, source: bytes):
        self.source, self.found = source, []
        self.classes: list[str] = []
        self.function, self.index = "", False
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self.begins = [sum(lengths[:number]) for number in range(len(lengths) + 1)]

    # Where

    def place(self, node: ast.expr, end: bool = False) -> int:
        line, column = (
            (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        )
        return self.begins[line - 1] + column

    def text(self, node: ast.expr) -> str:
        """The source of an expression, in brackets where it needs them."""
        found = self.source[self.place(node) : self.place(node, end=True)].decode()
        return found if isinstance(node, ATOMS) else f"({found})"

    def add(
        self,
        kind: str,
        node: ast.expr,
        new: str,
        *,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        if not self.function or self.function.endswith("__check_init__"):
            return
        start = self.place(node) if start is None else start
        end = self.place(node, end=True) if end is None else end
        self.found.append(Mutant(self.function, node.lineno, kind, start, end, new))

    def between(self, left: ast.expr, right: ast.expr, old: bytes, kind: str, new: str) -> None:
        """The operator between two operands is replaced."""
        gap_start = self.place(left, end=True)
        gap_end = self.place(right)
        at = self.source.find(old, gap_start, gap_end)
        if at >= 0 and b"#" not in self.source[gap_start:gap_end]:
            self.add(kind, left, new, start=at, end=at + len(old))

    # What is looked at

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not self.function:
            self.classes.append(node.name)
            self.visit_all(node.body)
            self.classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = self.function
        self.function = outer or ".".join([*self.classes, node.name])
        self.visit_all(node.body[1:] if ast.get_docstring(node) is not None else node.body)
        self.function = outer

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.body[-1], ast.Raise):
            self.visit_all(node.orelse)
        else:
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """An error message is no formula."""

    visit_Assert = visit_JoinedStr = visit_Raise

    def visit_all(self, nodes: list) -> None:
        for node in nodes:
            self.visit(node)

    # What is changed

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if any(
            isinstance(part, ast.Attribute) and part.attr in TOLERANCES for part in ast.walk(node)
        ):
            return
        strings = (ast.JoinedStr, ast.List, ast.Tuple)
        sides = node.left, node.right
        if not any(isinstance(side, strings) or _is_string(side) for side in sides):
            self.operator(node, type(node.op))
        self.generic_visit(node)

    def operator(self, node: ast.BinOp, kind: type) -> None:
        left, right = node.left, node.right
        if kind in SIGNS:
            self.between(left, right, SIGNS[kind][0], "sign", SIGNS[kind][1])
            self.add("dropped", node, self.text(left))
            self.add("dropped", node, self.text(right))
        elif kind in FACTORS:
            if not self.index:  # where a fraction is refused at once
                self.between(left, right, FACTORS[kind][0], "factor", FACTORS[kind][1])
            self.add("dropped", node, self.text(left))
        elif kind is ast.Pow:
            self.add("dropped", node, self.text(left))
        elif kind is ast.MatMult and self.text(left) != self.text(right):
            self.add("swapped", node, f"{self.text(right)} @ {self.text(left)}")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self.add("sign", node, self.text(node.operand))
        elif isinstance(node.op, ast.Not | ast.Invert):
            self.add("not", node, self.text(node.operand))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        symbols = {
            ast.Lt: b"<",
            ast.LtE: b"<=",
            ast.Gt: b">",
            ast.GtE: b">=",
            ast.Eq: b"==",
            ast.NotEq: b"!=",
        }
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            if type(op) in COMPARISONS:
                self.between(left, right, symbols[type(op)], "comparison", COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = (b"and", "or") if isinstance(node.op, ast.And) else (b"or", "and")
        self.between(node.values[0], node.values[1], old, "not", new)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        outer, self.index = self.index, True
        self.visit(node.slice)
        self.index = outer

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self.add("index" if self.index else "constant", node, str(node.value + 1))
        elif type(node.value) is float and (node.value == 0 or 1e-3 < abs(node.value) < 1e3):
            self.add("constant", node, repr(2 * node.value or 1.0))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in ("real", "imag"):
            self.add("function", node, f"{self.text(node.value)}.{EXCHANGED[node.attr]}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name in UNCHANGED or name.lstrip("_").startswith(("check", "expect")):
            return
        outer, self.index = self.index, False
        if name in EXCHANGED:
            end = self.place(node.func, end=True)
            self.add("function", node.func, EXCHANGED[name], start=end - len(name), end=end)
        if name in DROPPED and len(node.args) == 1:
            self.add("dropped", node, self.text(node.args[0]))
        self.arguments(node, name)
        self.visit(node.func)
        self.visit_all(node.args)
        self.index = outer
        for keyword in node.keywords:
            if keyword.arg in ("axis", "axes"):
                self.axis(keyword.value)
            elif keyword.arg not in SPEED:
                self.visit(keyword.value)

    def arguments(self, node: ast.Call, name: str) -> None:
        """The first two arguments are exchanged; of `where` the last two."""
        pair = node.args[1:3] if name == "where" else node.args[:2]
        if len(pair) == 2 and name not in SYMMETRIC and all(_is_value(arg) for arg in pair):
            first, second = (
                self.source[self.place(arg) : self.place(arg, end=True)].decode() for arg in pair
            )
            gap = self.source[self.place(pair[0], end=True) : self.place(pair[1])].decode()
            if first != second and "#" not in gap and gap.strip(" \n") == ",":
                self.add(
                    "swapped", pair[0], f"{second}{gap}{first}", end=self.place(pair[1], end=True)
                )

    def axis(self, node: ast.expr) -> None:
        """Another axis: the next, or the one before where it is counted from the end."""
        try:
            axis = ast.literal_eval(node)
        except ValueError:
            return
        if isinstance(axis, int):
            self.add("axis", node, str({0: 1, -1: 0}.get(axis, axis - 1)))


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, int | float | complex)


def _is_value(node: ast.expr) -> bool:
    """Whether it may be a number: a key or a string in another's place is refused at once."""
    return not (
        isinstance(node, ast.Starred) or _is_string(node) or "key" in getattr(node, "id", "")
    )


# Putting them into effect


def codes(code: CodeType) -> dict[str, CodeType]:
    """The functions inside of a code by their names."""
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= {inner.co_qualname: inner} | codes(inner)
    return found


def put(module: ModuleType, name: str, source: bytes) -> None:
    """Gives a function of a module, wherever it is held already, the code it has in this source of
    the module.
    """
    file = str(module.__file__)
    new = codes(module.__loader__.source_to_code(source, file))[name]
    for function in functions(file, name):
        function.__code__ = new


@functools.cache
def functions(file: str, name: str) -> list[FunctionType]:
    """All of a file that are called so: one, unless a decorator made copies."""
    gc.unfreeze()
    codes = (
        (thing, thing.__code__) for thing in gc.get_objects() if isinstance(thing, FunctionType)
    )
    same = [thing for thing, code in codes if code.co_filename == file and code.co_qualname == name]
    gc.freeze()
    if not same:
        raise LookupError(f"{name} is not found among the functions of {file}.")
    return same
