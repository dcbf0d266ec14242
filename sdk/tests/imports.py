"""What the sources import, read from their syntax trees without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "services", "service", "managers", "handlers"}
"""Names that no file may have, because a file is named for its topic."""


class Import(NamedTuple):
    line: int
    module: str


def files_of(root: Path, folders: Sequence[str]) -> list[str]:
    """Return the Python files below some folders, migrations left out, relative to `root`. Each folder must hold some."""
    found = {folder: [path.relative_to(root) for path in (root / folder).rglob("*.py")] for folder in folders}
    assert all(found.values()), f"one of {', '.join(folders)} has no Python file"
    return sorted(str(path) for paths in found.values() for path in paths if "migrations" not in path.parts)


@cache
def imports_of(path: str, source: str) -> list[Import]:
    """Return each module that a file imports, with relative imports written out. `path` is relative to where modules begin.

    Cached, because several tests ask for the same files.
    """
    return list(_imports_of(path, source))


def _imports_of(path: str, source: str) -> Iterator[Import]:
    package = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield Import(node.lineno, module)
            # `from . import writes` and `from traces_app import writes` import a module too.
            yield from (Import(node.lineno, f"{module}.{alias.name}") for alias in node.names)


def module_arrows(root: Path, paths: Sequence[str]) -> dict[str, set[str]]:
    """Return the imports between some modules, including those in functions and for type checking."""
    modules = {path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path for path in paths}
    return {
        name: {module for _, module in imports_of(path, (root / path).read_text()) if module in modules} - {name}
        for name, path in modules.items()
    }


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of names that import each other, directly or indirectly."""
    reached = {name: reachable(name, arrows) for name in arrows}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached.get(other, ())))
        for name in arrows
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def reachable(name: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return what a name imports, directly or indirectly."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def broad_handlers(source: str) -> list[int]:
    """Return the lines of handlers that catch every exception. Ruff's BLE finds most, but a comment can silence it."""
    nodes = list(ast.walk(ast.parse(source)))
    handlers = [node.lineno for node in nodes if isinstance(node, ast.ExceptHandler) and _is_broad(node.type)]
    suppressed = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and any(_is_broad(argument) for argument in node.args)
    ]
    return handlers + suppressed


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(one) for one in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))


def calls_of(source: str, prefix: str) -> list[int]:
    """Return the lines that call a name with this beginning, such as a class."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith(prefix)
    ]
