"""Test the dependencies between apps and packages, read from their imports: they point one way."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.paths import ROOT

LAYERS = ["access_app", "messages_app", "traces_app", "tracesite"]  # each may import those before it
# The packages of traces_app from the ground up: each may import those before it. See docs/architecture.md.
FLOORS = [
    "schema",
    "normalize",
    "models",
    "ingest",
    "queries",
    "transcripts",
    "adapters",
    "events",
    "maintenance",
    "views",
    "admin",
    "urls",
]

# Used in processes without Django: the code of the recorder, and the parsing of transcripts into records.
WITHOUT_DJANGO = (
    "sdk/tracesite_sdk/redaction/",
    "sdk/tracesite_sdk/records/ids.py",
    "sdk/tracesite_sdk/records/value_counts.py",
    "sdk/tracesite_sdk/records/",
    "sdk/tracesite_sdk/normalize/",
    "traces_app/adapters/",
    "sdk/tracesite_sdk/events/contexts.py",
    "sdk/tracesite_sdk/events/ids.py",
    "sdk/tracesite_sdk/events/projection.py",
    "sdk/tracesite_sdk/events/step_order.py",
    "sdk/tracesite_sdk/events/unnamed_calls.py",
    *(
        f"sdk/tracesite_sdk/transcripts/{name}.py"
        for name in ("conversation", "entries", "outline", "times", "turn_records", "turns")
    ),
    "sdk/tracesite_sdk/transcripts/files/",
    "sdk/tracesite_sdk/formats/",
    "sdk/tracesite_sdk/transcripts/parsing/",
    "sdk/tracesite_sdk/recorder/",
    "tracesite/weknora/errors.py",
    "tracesite/weknora/frames.py",
    "tracesite/weknora/shapes.py",
    "tracesite/weknora/titles.py",
)
DATABASE_SINK = "traces_app/events/database_sink.py"  # for agents inside of Django
DJANGO = ("django", "rest_framework", "django_filters", "drf_spectacular", "psycopg")
READS = ("traces_app/queries/", "messages_app/admin/", "traces_app/admin/", "messages_app/sql/batch.py")
OF_DEFAULT_ALIAS = ("django.db.connection", "django.db.transaction", "django.db.DEFAULT_DB_ALIAS")
OF_ANY_DATABASE = ("access_app/db/", "access_app/two_factor.py")
HTTP = ("rest_framework", "django.http", "django.urls", "django.views", "django.shortcuts", "drf_spectacular")
SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "services", "service", "managers", "handlers"}


class Import(NamedTuple):
    line: int
    module: str


@cache
def imports_of(path: str, source: str) -> list[Import]:
    """Every module that a file imports, with relative imports written out. Several tests ask for the same files."""
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


def violations(path: str, source: str) -> list[str]:
    """Return the violations in one file, each with its line and reason."""
    found = [f"{path}:{line}: {reason}" for line, reason in _wrong_imports(path, source)]
    name = Path(path).stem
    if name in SAY_NOTHING:
        found.append(f"{path}: a file is named for its topic, `{name}` says nothing")
    if name == "__init__" and path.count("/") == 1 and _code_of(source):
        found.append(f"{path}: an app's __init__ holds a docstring only, so that it imports without Django settings")
    if path != "sdk/tracesite_sdk/normalize/redacted.py":
        found += [
            f"{path}:{node.lineno}: only sdk/tracesite_sdk/normalize/redacted.py makes {node.func.id}: nothing reaches a table unredacted"
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("Redacted")
        ]
    return found


def _wrong_imports(path: str, source: str) -> Iterable[tuple[int, str]]:
    app = path.split("/")[0]
    allowed = LAYERS[: LAYERS.index(app) + 1]
    for line, module in imports_of(path, source):
        top = module.split(".")[0]
        if top in LAYERS and top not in allowed:
            yield line, f"{app} may not know {top}: the arrow points the other way"
        if app == top == "traces_app" and (reason := _wrong_floor(path, module)):
            yield line, reason
        if path.startswith(WITHOUT_DJANGO) and path != DATABASE_SINK and top in DJANGO:
            yield line, f"imports {top}, and must work in a process without Django"
        if path.endswith("models.py") and (module.endswith(".writes") or _is_any(module, HTTP)):
            yield line, f"models may not know {module}: rows know neither writes nor HTTP"
        is_write = path.endswith("writes.py") or path.startswith(("traces_app/ingest/", "traces_app/maintenance/"))
        if is_write and _is_any(module, HTTP):
            yield line, f"writes may not know {module}: HTTP is translated in the views"
        if path.startswith("sdk/tracesite_sdk/formats/") and Path(path).stem not in ("registry", "__init__"):
            other = module.removeprefix("tracesite_sdk.formats.")
            if module != other:
                yield line, f"a format knows no other: {other}"
        if path.startswith(READS) and module == "access_app.db.connection":
            yield line, "reads may be on the replica: they take reading_connection() of access_app.db.reading"
        if module in OF_DEFAULT_ALIAS and not path.startswith(OF_ANY_DATABASE):
            yield (
                line,
                f"traces may be in another database than `default`: take {module.split('.')[-1]} from access_app.db",
            )
        if path.startswith("sdk/tracesite_sdk/transcripts/parsing/") and _is_any(module, ("tracesite_sdk.formats",)):
            yield line, "what formats share knows none of them"


def _wrong_floor(path: str, module: str) -> str | None:
    below, above = ((*parts, "")[1] for parts in (path.removesuffix(".py").split("/"), module.split(".")))
    if below in FLOORS and above in FLOORS and FLOORS.index(above) > FLOORS.index(below):
        return f"{below} may not know {above}: it is on a floor above"
    return None


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of names that import each other, directly or indirectly."""
    reached = {name: _reachable(name, arrows) for name in arrows}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached.get(other, ())))
        for name in arrows
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(name: str, arrows: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def package_arrows() -> dict[str, set[str]]:
    """Return the imports between the packages and modules directly below an app."""
    arrows: dict[str, set[str]] = {}
    for path in files():
        own = ".".join(path.removesuffix(".py").split("/")[:2])
        for _, module in imports_of(path, (ROOT / path).read_text()):
            other = ".".join(module.split(".")[:2])
            if other != own and other.count(".") and other.split(".")[0] in LAYERS:
                arrows.setdefault(own, set()).add(other)
    return arrows


def module_arrows(package: str) -> dict[str, set[str]]:
    """Return the imports between the modules of a package, including those in functions and for type checking."""
    modules = {path.removesuffix(".py").replace("/", "."): path for path in files() if path.startswith(package)}
    return {
        name: {module for _, module in imports_of(path, (ROOT / path).read_text()) if module in modules}
        for name, path in modules.items()
    }


def _is_any(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def _code_of(source: str) -> list[ast.stmt]:
    body = ast.parse(source).body
    return body[1:] if body and isinstance(body[0], ast.Expr) else body


def files() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for app in LAYERS
        for path in (ROOT / app).rglob("*.py")
        if "migrations" not in path.relative_to(ROOT).parts
    )


def test_dependencies_point_one_way() -> None:
    found = [violation for path in files() for violation in violations(path, (ROOT / path).read_text())]
    assert found == []


def test_packages_have_no_import_circles() -> None:
    assert circles(package_arrows()) == []


def test_recorder_modules_have_no_import_circles() -> None:
    arrows = module_arrows("sdk/tracesite_sdk/recorder/")
    assert "tracesite_sdk.recorder.scopes" in arrows["tracesite_sdk.recorder.recording"]
    assert circles(arrows) == []


def test_recorder_modules_read_no_private_names_of_others() -> None:
    """Private names are those of an imported module or of a scope's recorder; those of a class's own bases are allowed."""
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path in files()
        if path.startswith("sdk/tracesite_sdk/recorder/")
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if ast.unparse(node.value).split(".")[-1]
        in {"recorder", "_recorder", "runtime", "_runtime", "pipeline", "sink"}
    ]
    assert found == []


def test_circle_through_three_packages_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_traces_app_has_at_most_12_rooms() -> None:
    beside = {"__init__", "models", "apps", "urls", "migrations", "management"}
    assert (
        len({path.removesuffix(".py").split("/")[1] for path in files() if path.startswith("traces_app/")} - beside)
        <= 12
    )


def test_files_that_run_without_django_exist() -> None:
    assert [prefix for prefix in WITHOUT_DJANGO if not any(path.startswith(prefix) for path in files())] == []


@pytest.mark.parametrize(
    ("path", "source", "reason"),
    [
        ("messages_app/views.py", "from traces_app.models import ToolCall", "messages_app may not know traces_app"),
        ("access_app/keys.py", "import messages_app.models", "access_app may not know messages_app"),
        (
            "traces_app/queries/messages.py",
            "def f():\n    from tracesite import urls",
            "traces_app may not know tracesite",
        ),
        ("sdk/tracesite_sdk/records/__init__.py", "from django.db import models", "without Django"),
        ("sdk/tracesite_sdk/formats/pi.py", "from . import openai_chat", "a format knows no other"),
        ("traces_app/models.py", "from . import writes", "rows know neither writes nor HTTP"),
        ("traces_app/ingest/store.py", "from rest_framework import status", "HTTP is translated in the views"),
        ("traces_app/queries/seals.py", "from access_app.db import connection", "may be on the replica"),
        ("traces_app/ingest/store.py", "from django.db import connection, models", "connection from access_app.db"),
        ("traces_app/utils.py", "", "says nothing"),
        ("traces_app/__init__.py", '"""Doc."""\nfrom .records import Message', "a docstring only"),
        ("traces_app/views.py", "x = Redacted(session=s, receipts=[], message_receipts=[])", "unredacted"),
    ],
)
def test_forbidden_import_is_found(path: str, source: str, reason: str) -> None:
    found = violations(path, source)
    assert found
    assert all(reason in violation for violation in found)


BOUNDARIES = {
    "sdk/tracesite_sdk/recorder/guard.py",  # an error of ours must not reach the agent
    "traces_app/maintenance/jobs.py",  # it is logged and noted, and must not end the thread of the job
}


def test_no_broad_exception_handlers() -> None:
    """Ruff's BLE finds them, too, but a comment can silence it."""
    found = [
        f"{path}:{node.lineno}"
        for path in files()
        if path not in BOUNDARIES
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
    ]
    assert found == []
