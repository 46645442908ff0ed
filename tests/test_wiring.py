"""How parts are put together: few collaborators each, and nobody writes into somebody else's attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("crawler", "frontier", "politeness")

COLLABORATORS = 5
VALUES = ("str", "int", "float", "bool", "bytes", "Path", "frozenset", "Sequence", "Iterable", "Mapping", "tuple")
"""Annotations of values. So are those that end in Settings, Policy, Rules or Limits: they do nothing."""

FOREIGN = {
    "crawler/cli/command_registry.py": {"cls"},
    "crawler/cli/value_names.py": {"metavar", "type", "convert", "get_metavar", "get_usage_pieces"},
    "crawler/fetch/aiohttp_late.py": {"set_default_verify_paths", "__class__"},  # of TLS contexts
    "crawler/fetch/library_patches.py": {
        "max_size",
        "_call_connection_lost",
        "_read_ready_cb",
        "_write_ready",
    },  # asyncio's
    "crawler/fetch/client.py": {"__traceback__"},
    "crawler/logs.py": {"propagate", "fields"},  # logging's
    "crawler/parse/tree.py": {"tag"},  # of elements
    "crawler/sinks/wacz.py": {"external_attr", "compress_type"},  # zipfile's
    "crawler/cli/crawl_access.py": {"__signature__", "__annotations__"},
    "crawler/cli/plan.py": {"__signature__", "__annotations__"},
    "crawler/parse/sitemaps.py": {  # expat's
        "buffer_text",
        "StartDoctypeDeclHandler",
        "StartElementHandler",
        "EndElementHandler",
        "CharacterDataHandler",
    },
}
"""Attributes of other libraries' objects that are meant to be assigned, by file."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def constructors() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in trees():
        for made in ast.walk(tree):
            if isinstance(made, ast.ClassDef):
                for function in made.body:
                    if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                        yield f"{path}:{made.name}", function


def is_value(annotation: ast.expr | None) -> bool:
    named = ast.unparse(annotation) if annotation is not None else ""
    name = named.removesuffix(" | None").partition("[")[0]
    return name in VALUES or name.endswith(("Settings", "Policy", "Rules", "Limits"))


def test_no_constructor_has_more_than_five_collaborators() -> None:
    many = {}
    for name, function in constructors():
        arguments = [*function.args.args[1:], *function.args.kwonlyargs]
        collaborators = [one.arg for one in arguments if not is_value(one.annotation)]
        if len(collaborators) > COLLABORATORS:
            many[name] = collaborators
    assert many == {}


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes of anything but `self` and `cls` that are assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield node


def attributes_of(made: ast.ClassDef) -> set[str]:
    """What a class calls its own."""
    own: set[str] = set()
    for part in ast.walk(made):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            own.add(part.target.id)
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            own.update([part.attr] if ast.unparse(part.value) == "self" else [])
    return own


@pytest.mark.parametrize("package", PACKAGES)
def test_nobody_assigns_attributes_of_a_class_elsewhere(package: str) -> None:
    breaches = []
    for path, tree in trees():
        if path.startswith(package):
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            own = {node for made in classes for node in assigned(made) if node.attr in attributes_of(made)}
            foreign = [n for n in assigned(tree) if n not in own and n.attr not in FOREIGN.get(path, set())]
            breaches += [f"{path}:{node.lineno} {ast.unparse(node)}" for node in foreign]
    assert breaches == []
