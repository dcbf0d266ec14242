"""Test the dependencies between apps and packages, read from their imports: they point one way."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from sdk.tests.imports import (
    SAY_NOTHING,
    broad_handlers,
    calls_of,
    circles,
    files_of,
    imports_of,
    module_arrows,
    reachable,
)
from sdk.tests.paths import ROOT

APPS = ["access_app", "messages_app", "traces_app", "tracesite"]
# Each may import those before it. The rooms of the first are in sdk/tests/test_architecture.py.
LAYERS = ["tracesite_sdk", *APPS]
# The packages of traces_app from the ground up: each may import those before it. See docs/architecture.md.
FLOORS = ["models", "ingest", "queries", "imports", "events", "maintenance", "views", "eko", "admin", "urls"]
READS = ("traces_app/queries/", "messages_app/admin/", "traces_app/admin/", "messages_app/sql/batch.py")
OF_DEFAULT_ALIAS = ("django.db.connection", "django.db.transaction", "django.db.DEFAULT_DB_ALIAS")
OF_ANY_DATABASE = ("access_app/db/", "access_app/two_factor.py")
WRITES = (
    "messages_app.writes",
    "traces_app.ingest.store",
    "traces_app.imports",
    "traces_app.events",
    "traces_app.eko",
    "traces_app.maintenance",
)
HTTP = ("rest_framework", "django.http", "django.urls", "django.views", "django.shortcuts", "drf_spectacular")


def violations(path: str, source: str) -> list[str]:
    """Return the violations in one file, each with its line and reason."""
    found = [f"{path}:{line}: {reason}" for line, reason in _wrong_imports(path, source)]
    name = Path(path).stem
    if name in SAY_NOTHING:
        found.append(f"{path}: a file is named for its topic, `{name}` says nothing")
    if name == "__init__" and path.count("/") == 1 and _code_of(source):
        found.append(f"{path}: an app's __init__ holds a docstring only, so that it imports without Django settings")
    found += [
        f"{path}:{line}: only tracesite_sdk.normalize.redacted makes Redacted records: nothing reaches a table unredacted"
        for line in calls_of(source, "Redacted")
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
        if path.endswith("models.py") and (module.endswith(".writes") or _is_any(module, HTTP)):
            yield line, f"models may not know {module}: rows know neither writes nor HTTP"
        is_write = path.endswith("writes.py") or path.startswith(("traces_app/ingest/", "traces_app/maintenance/"))
        if is_write and _is_any(module, HTTP):
            yield line, f"writes may not know {module}: HTTP is translated in the views"
        if path.startswith(READS) and module == "access_app.db.connection":
            yield line, "reads may be on the replica: they take reading_connection() of access_app.db.reading"
        if module in OF_DEFAULT_ALIAS and not path.startswith(OF_ANY_DATABASE):
            yield (
                line,
                f"traces may be in another database than `default`: take {module.split('.')[-1]} from access_app.db",
            )


def _wrong_floor(path: str, module: str) -> str | None:
    below, above = ((*parts, "")[1] for parts in (path.removesuffix(".py").split("/"), module.split(".")))
    if below in FLOORS and above in FLOORS and FLOORS.index(above) > FLOORS.index(below):
        return f"{below} may not know {above}: it is on a floor above"
    return None


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


def _is_any(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def _code_of(source: str) -> list[ast.stmt]:
    body = ast.parse(source).body
    return body[1:] if body and isinstance(body[0], ast.Expr) else body


def files() -> list[str]:
    return files_of(ROOT, APPS)


def test_dependencies_point_one_way() -> None:
    found = [violation for path in files() for violation in violations(path, (ROOT / path).read_text())]
    assert found == []


def test_packages_have_no_import_circles() -> None:
    assert circles(package_arrows()) == []


def test_list_of_messages_imports_nothing_that_writes() -> None:
    """Directly or indirectly, also in functions."""
    arrows = module_arrows(ROOT, files())
    found = reachable("traces_app.views.messages", arrows)
    assert arrows.keys() >= set(WRITES)
    assert "traces_app.queries.messages" in found
    assert sorted(module for module in found if _is_any(module, WRITES)) == []


def test_traces_app_has_at_most_12_rooms() -> None:
    beside = {"__init__", "models", "apps", "urls", "migrations", "management"}
    assert (
        len({path.removesuffix(".py").split("/")[1] for path in files() if path.startswith("traces_app/")} - beside)
        <= 12
    )


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


def test_only_the_runner_of_jobs_catches_every_exception() -> None:
    """It logs and notes the failure, which must not end the thread of the job."""
    found = [path for path in files() if broad_handlers((ROOT / path).read_text())]
    assert found == ["traces_app/maintenance/jobs.py"]
