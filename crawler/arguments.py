"""Checks the arguments of the public API against its type hints, so that a mistake fails at the line where it was made,
with one sentence that names the parameter and says what to write. What a value may be within its type is checked where it
is used."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, Unpack, cast, get_args, get_origin

import msgspec

from crawler.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

DEEPEST = 100
"""How many containers may be within each other in JSON."""

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    bytes: "bytes",
    NoneType: "None",
    Path: "a Path",
    type: "a class",
}


class WrongArgument(UserError, TypeError):
    """Raised for an argument of a wrong type."""


class _Hint(NamedTuple):
    """A type, and the classes whose instances are of it without a further look."""

    type: Any
    enough: frozenset[type]


def checked(function: F) -> F:
    """Have `function` raise WrongArgument for arguments that are not of the types in its signature. An iterator becomes a
    list. Types that only a type checker knows are not checked."""
    parameters = inspect.signature(function).parameters.values()
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    others = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")

    @cache
    def hints() -> dict[str, _Hint]:
        found = {}
        for name, written in inspect.get_annotations(function).items():
            try:
                hint = eval(written, function.__globals__)  # what the module says itself
            except NameError:
                continue
            if get_origin(hint) is not Unpack and hint not in (Any, object):
                found[name] = _Hint(hint, frozenset(one for one in _members(hint) if isinstance(one, type)) - {float})
        return found

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        known = hints()
        taken = list(arguments)
        for at, name in enumerate(positional[: len(taken)]):
            hint = known.get(name)
            if hint is not None and type(taken[at]) not in hint.enough:
                taken[at] = _taken(name, taken[at], hint.type)
        for name, value in named.items():
            hint = known.get(name) or known.get(others)
            if hint is not None and type(value) not in hint.enough:
                named[name] = _taken(name, value, hint.type)
        return function(*taken, **named)

    return cast(F, call)


def _taken(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, Iterator):
        value = list(value)
    check(name, value, hint)
    return value


def check(name: str, value: object, hint: Any) -> None:
    """Raise WrongArgument if `value`, which the user calls `name`, is not of the type `hint`."""
    if problem := _problem(name, value, hint):
        raise WrongArgument(problem)


def _members(hint: Any) -> Sequence[Any]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]


def _problem(name: str, value: Any, hint: Any) -> str:
    """What is wrong with `value`; "" if nothing is. Of the types that it may be, the one that it nearly is tells it."""
    problems = [_problem_with(name, value, member) for member in _members(hint)]
    if None in problems:
        return ""
    return next(filter(None, problems), f"{name} has to be {_in_words(hint)}, not {_told(value)}")


def _problem_with(name: str, value: Any, hint: Any) -> str | None:
    """None if `value` is of the type `hint`, "" if it is not, and what is wrong in it if it is a container of such."""
    kind, of = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        if problem := _problem(name, value, of[0]):
            return "" if problem.startswith(f"{name} has to be") else problem
        return of[2](name, value) if len(of) > 2 else None
    if kind in (Any, object):
        return None
    if kind is Callable:
        return None if callable(value) else ""
    if kind is float:
        return None if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return ""
    if _is_list(hint) and isinstance(value, (str, bytes, Mapping)):
        return ""
    if kind is Mapping:
        inner = [(f"each name in {name}", key, of[0]) for key in value]
        inner += [(f"{name}[{key!r}]", one, of[1]) for key, one in value.items()]
    elif kind is tuple:
        if len(value) != len(of):
            return ""
        inner = [(f"{name}[{at}]", *pair) for at, pair in enumerate(zip(value, of, strict=True))]
    elif _is_list(hint) and isinstance(value, (Sequence, Set)):
        inner = [(f"{name}[{at}]", one, of[0]) for at, one in enumerate(value)]
    else:
        return None
    return next(filter(None, (_problem(*one) for one in inner)), None)


def _told(value: object) -> str:
    is_plain = value is None or isinstance(value, float)
    return str(value) if is_plain else type(value).__name__


def _in_words(hint: Any) -> str:
    members = [one for one in _members(hint) if not (one is int and float in _members(hint))]
    words = []
    for member in sorted(members, key=lambda one: (one is NoneType, _is_list(one))):
        kind, of = get_origin(member) or member, get_args(member)
        if kind is Annotated:
            words.append(of[1])
        elif kind is Callable:
            words.append("a function")
        elif kind is tuple:
            words.append("a pair of name and value")
        elif kind is Mapping:
            words.append("a dict")
        elif _is_list(member):
            is_of_these = len(members) > 1 and set(_members(of[0])) <= set(members)
            words.append(f"a list of {'these' if is_of_these else _in_words(of[0])}")
        else:
            words.append(_WORDS.get(kind) or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}")
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _is_list(hint: Any) -> bool:
    return get_origin(hint) in (Sequence, Iterable)


def _json(name: str, value: object) -> str | None:
    """Why `value` cannot become JSON, or would not be the same afterwards; None if it would."""
    if problem := _lost(name, value):
        return problem
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"{name} cannot become JSON: {error}"
    return None


def _lost(name: str, value: object, depth: int = 0) -> str | None:
    if isinstance(value, (Set, bytes, bytearray, memoryview)):
        return f"{name} is {_told(value)}, which JSON does not have: write a list or text"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}, which JSON does not have: write None"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"{name} is a number of more than 64 bits: write it as text"
    if depth > DEEPEST:
        return f"JSON may have {DEEPEST} lists and dicts within each other"
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return f"the keys of {name} have to be text"
        inner = value.items()
    elif isinstance(value, (list, tuple)):
        inner = enumerate(value)
    return next(filter(None, (_lost(f"{name}[{key!r}]", one, depth + 1) for key, one in inner)), None)


Json = Annotated[Any, "what JSON has", _json]
JsonDict = Annotated[Mapping[str, Any], "a dict of what JSON has", _json]
"""What becomes JSON, and comes back as it was."""

_Field = str | float | bool | None
_FIELD = "text, a number, True, False, None or a list of these"


def _field(name: str, value: object) -> str | None:
    wrong = f"{name} has to be {_FIELD}, not {_told(value)}"
    return wrong if _problem(name, value, _Field | Sequence[_Field]) else None


Values = Annotated[Any, _FIELD, _field]
"""The value of a field of a form."""
