"""The names of the library that a claim uses, directly or through helper functions of the claims.

They are read from the compiled code without running it: globals and attributes of modules.
"""

import dis
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .claim import Claim
from .pages import resolve

CLAIMS = "thetax.claims"


def unused(claim: Claim) -> list[str]:
    """The names in `of` that neither the claim's function nor any of its helpers refers to.

    >>> from thetax.claims import find_claims
    >>> unused(find_claims("1.2-novikoff")[0])
    []
    """
    found = used(claim.function)
    return [name for name, thing in zip(claim.of, resolve(claim.of)) if id(thing) not in found]


def used(function: Any) -> dict[int, Any]:
    """The objects that the function and its helpers refer to, by `id`.

    A helper is a function or class of the same package, whether called, wrapped or in a table. What
    the library itself refers to does not count.

    >>> from thetax.layers import relu, tanh
    >>> table = {"relu": relu}
    >>> def helper(x):
    ...     return table["relu"](x)
    >>> found = used(lambda x: helper(x))
    >>> id(relu) in found, id(tanh) in found
    (True, False)
    """
    package = _package(function)
    found = {}
    waiting = [function]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in found:
            found[id(thing)] = thing
            waiting.extend(_referred(thing, package))
    return found


def _package(function: Any) -> str:
    """The package of a function's helpers: the claims, or the user's own package."""
    module = function.__module__
    return CLAIMS if f"{module}.".startswith(f"{CLAIMS}.") else module.partition(".")[0]


def _referred(thing: Any, package: str) -> Iterable[Any]:
    """The objects one object refers to: its wrapped function, its items, or names in its code."""
    if isinstance(thing, Mapping):
        return thing.values()
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    if isinstance(thing, partial):
        return thing.func, *thing.args, *thing.keywords.values()
    if isinstance(thing, MethodType):
        return thing.__self__, thing.__func__
    if isinstance(thing, classmethod | staticmethod):
        return (thing.__func__,)
    if isinstance(thing, property):
        return (thing.fget,)
    if not f"{getattr(thing, '__module__', '')}.".startswith(f"{package}."):
        return _makers(thing)
    if inspect.isclass(thing):
        return *thing.__bases__, *vars(thing).values()
    if hasattr(thing, "__wrapped__"):
        return (thing.__wrapped__,)
    if isinstance(thing, FunctionType):
        defaults = *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()
        return *_closed_over(thing), *defaults, *_names(thing.__code__, thing.__globals__)
    return ()


def _makers(thing: Any) -> Iterable[Any]:
    """The class or enclosing function that made an object of the library before the claim ran."""
    if inspect.isclass(thing) or isinstance(thing, ModuleType):
        return ()
    outer, inner, _ = getattr(thing, "__qualname__", "").partition(".<locals>")
    if inner:
        return (getattr(sys.modules.get(thing.__module__), outer, None),)
    return () if isinstance(thing, FunctionType) else (type(thing),)


def _names(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """The globals and the attributes of modules that code and its nested code refer to."""
    missing = object()
    thing = missing
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            thing = names.get(step.argval, missing)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(thing, ModuleType):
            thing = getattr(thing, step.argval, missing)
        else:
            thing = missing
        if thing is not missing:
            yield thing
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant, names)


def _closed_over(function: FunctionType) -> Iterator[Any]:
    """The closure variables of a function that have a value."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            yield cell.cell_contents
