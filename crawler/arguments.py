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


class _Rule(NamedTuple):
    """What a value has to be besides its type, in an Annotated. `problem`: returns what is wrong with a value that the
    user calls by this name, None if nothing is."""

    words: str
    problem: Callable[[str, object], str | None]


class _Hint(NamedTuple):
    """A type, and the classes whose instances are of it without a further look."""

    type: Any
    enough: frozenset[type]


def checked(function: F) -> F:
    """Have `function` raise WrongArgument for arguments that are not of the types in its signature. An iterator becomes a
    list. Types that only a type checker knows are not checked."""
    parameters = inspect.signature(function).parameters.values()
    positional = [known.name for known in parameters if known.kind is known.POSITIONAL_OR_KEYWORD]
    others = next((known.name for known in parameters if known.kind is known.VAR_KEYWORD), "")

    @cache
    def hints() -> dict[str, _Hint]:
        types = {}
        for name, written in inspect.get_annotations(function).items():
            try:
                hint = eval(written, function.__globals__)  # what the module says itself
            except NameError:
                continue
            if get_origin(hint) is not Unpack and hint not in (Any, object):
                enough = frozenset(member for member in _members(hint) if isinstance(member, type)) - {float}
                types[name] = _Hint(hint, enough)
        return types

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        known = hints()
        values = list(arguments)
        for at, name in enumerate(positional[: len(values)]):
            hint = known.get(name)
            if hint is not None and type(values[at]) not in hint.enough:
                values[at] = _usable(name, values[at], hint.type)
        for name, value in named.items():
            hint = known.get(name) or known.get(others)
            if hint is not None and type(value) not in hint.enough:
                named[name] = _usable(name, value, hint.type)
        return function(*values, **named)

    return cast(F, call)


def _usable(name: str, value: Any, hint: Any) -> Any:
    """`value`, or a list of what an iterator yields. Raises WrongArgument."""
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
    return next(filter(None, problems), f"{name} has to be {_in_words(hint)}, not {_kind_of(value)}")


def _problem_with(name: str, value: Any, hint: Any) -> str | None:
    """None if `value` is of the type `hint`, "" if it is not, and what is wrong in it if it is a container of such."""
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        rule: _Rule = arguments[1]
        problem = _problem_with(name, value, arguments[0])
        return rule.problem(name, value) if problem is None else problem
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
        inner = [(f"each name in {name}", key, arguments[0]) for key in value]
        inner += [(f"{name}[{key!r}]", of_key, arguments[1]) for key, of_key in value.items()]
    elif kind is tuple:
        if len(value) != len(arguments):
            return ""
        inner = [(f"{name}[{at}]", *pair) for at, pair in enumerate(zip(value, arguments, strict=True))]
    elif _is_list(hint) and isinstance(value, (Sequence, Set)):
        inner = [(f"{name}[{at}]", element, arguments[0]) for at, element in enumerate(value)]
    else:
        return None
    return next(filter(None, (_problem(*part) for part in inner)), None)


def _kind_of(value: object) -> str:
    is_plain = value is None or isinstance(value, float)
    return str(value) if is_plain else type(value).__name__


def _in_words(hint: Any) -> str:
    members = [member for member in _members(hint) if not (member is int and float in _members(hint))]
    words = []
    for member in sorted(members, key=lambda member: (member is NoneType, _is_list(member))):
        kind, arguments = get_origin(member) or member, get_args(member)
        if kind is Annotated:
            words.append(arguments[1].words)
        elif kind is Callable:
            words.append("a function")
        elif kind is tuple:
            words.append("a (name, value) pair")
        elif kind is Mapping:
            words.append("a dict")
        elif _is_list(member):
            (element,) = arguments
            is_of_these = len(members) > 1 and set(_members(element)) <= set(members)
            several = "(name, value) pairs" if get_origin(element) is tuple else _in_words(element)
            words.append(f"a list of {'these' if is_of_these else several}")
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
        return f"{name} is {_kind_of(value)}, which JSON does not have: write a list or text"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}, which JSON does not have: write None"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"{name} is a number of more than 64 bits: write it as text"
    if depth > DEEPEST:
        return f"JSON may be nested {DEEPEST} levels deep"
    inner: Iterable[tuple[object, object]]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return f"the keys of {name} have to be text"
        inner = value.items()
    elif isinstance(value, (list, tuple)):
        inner = enumerate(value)
    else:
        fields = getattr(value, "__struct_fields__", ()) or getattr(value, "__dataclass_fields__", ())
        inner = ((field, getattr(value, field, None)) for field in fields)
    return next(filter(None, (_lost(f"{name}[{key!r}]", part, depth + 1) for key, part in inner)), None)


Json = Annotated[Any, _Rule("what JSON has", _json)]
JsonDict = Annotated[Mapping[str, Any], _Rule("a dict of what JSON has", _json)]
"""What becomes JSON, and comes back as it was."""

_Field = str | float | bool | None
_FIELD = "text, a number, True, False, None or a list of these"


def _field(name: str, value: object) -> str | None:
    wrong = f"{name} has to be {_FIELD}, not {_kind_of(value)}"
    return wrong if _problem(name, value, _Field | Sequence[_Field]) else None


Values = Annotated[Any, _Rule(_FIELD, _field)]
"""The value of a field of a form."""
