"""Test the dependencies between apps and packages, read from their imports: they point one way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from itertools import chain
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
FLOORS = ["models", "ingest", "queries", "spans", "imports", "events", "maintenance", "views", "eko", "admin", "urls"]
READS = ("traces_app/queries/", "messages_app/admin/", "traces_app/admin/", "messages_app/sql/batch.py")
OF_ONE_PROJECT = ("traces_app/views/", "traces_app/queries/", "traces_app/admin/")
OF_DEFAULT_ALIAS = ("django.db.connection", "django.db.transaction", "django.db.DEFAULT_DB_ALIAS")
OF_ANY_DATABASE = ("access_app/db/",)
MANAGERS = ("objects", "with_deleted", "_base_manager", "_default_manager")
OF_THE_PRIMARY = {"SavedView", "ListColumns", "ModelPrice", "MaskingRun", "ErrorGroupState"}
# These build subqueries, or rows that their callers hand a database.
OF_NO_DATABASE = {"calls_in", "steps_with", "scores_with", "sessions_of", "_steps", "_results"}
# What knows that some projects have databases of their own: the list of them, the router, what divides and merges, and the work of
# operators. Everything else is handed a Database or a Readable.
SEVERAL_DATABASES = re.compile(
    r"(?<!\.)\busing\(|\b(project_aliases|all_aliases|all_databases|scopes_by_database|by_database|aliases_of|alias_of|use_alias|"
    r"databases_shown|note_databases)\(|\.using\(|access_app\.places|from \.places"
)
MOST_THAT_KNOW = 20
WRITES = (
    "messages_app.writes",
    "traces_app.ingest.store",
    "traces_app.spans",
    "traces_app.imports",
    "traces_app.events",
    "traces_app.eko",
    "traces_app.maintenance",
)
# The rows that are searched, counted and sealed, and who may write them without a row of the log of changes.
LOGGED_TABLES = "messages_app_message|messages_app_reference|traces_app_agentstep|traces_app_toolcall|traces_app_toolresult|traces_app_event"
LOGGED_MODELS = "Message|Reference|AgentStep|ToolCall|ToolResult|Event"
WRITES_SQL = re.compile(rf"(INSERT INTO|UPDATE|DELETE FROM) ({LOGGED_TABLES})\b")
WRITES_ROWS = re.compile(
    rf"rows\(({LOGGED_MODELS})\.\w+\).*\.(update|delete|create|bulk_create|bulk_update)\(.*\)$", re.DOTALL
)
LOGS = re.compile(r"\b(log_changes|log_all|log_sessions)\(")
LOGGED_BY_OTHERS = {
    "traces_app/events/run_records.py": "traces_app/ingest/store.py",
    "traces_app/events/run_rows.py": "traces_app/ingest/store.py",
    "traces_app/spans/projection.py": "traces_app/ingest/store.py",
    "traces_app/ingest/overwriting.py": "traces_app/ingest/store.py",
    "traces_app/ingest/placeholders.py": "traces_app/ingest/store.py",
    "traces_app/ingest/prices.py": "traces_app/ingest/store.py and traces_app/maintenance/costs.py",
    "traces_app/ingest/sql.py": "traces_app/ingest/store.py",
}
HTTP = ("rest_framework", "django.http", "django.urls", "django.views", "django.shortcuts", "drf_spectacular")


def violations(path: str, source: str) -> list[str]:
    """Return the violations in one file, each with its line and reason."""
    found = [f"{path}:{line}: {reason}" for line, reason in _wrong_imports(path, source)]
    found += [f"{path}:{line}: {reason}" for line, reason in _wrong_reads(path, source)]
    if path not in LOGGED_BY_OTHERS and not LOGS.search(source):
        found += [
            f"{path}:{line}: writes rows, but not the log of changes: log_changes(db, ...)" for line in _writes(source)
        ]
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
        if path.endswith("/models.py") and (module.endswith(".writes") or _is_any(module, HTTP)):
            yield line, f"models may not know {module}: rows know neither writes nor HTTP"
        is_write = path.endswith("writes.py") or path.startswith(("traces_app/ingest/", "traces_app/maintenance/"))
        if is_write and _is_any(module, HTTP):
            yield line, f"writes may not know {module}: HTTP is translated in the views"
        if module in OF_DEFAULT_ALIAS and not path.startswith(OF_ANY_DATABASE):
            yield line, f"traces may be in another database than `default`: take {module} of the `Database`"


def _wrong_reads(path: str, source: str) -> Iterable[tuple[int, str]]:
    """Yield what reads or writes traces where nobody said, and reads that would not go to the replica."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name in OF_NO_DATABASE:
            continue
        if path.startswith(OF_ONE_PROJECT):
            yield from (
                (node.lineno, "traces may be in another database than the primary: take the one of the request")
                for node in ast.walk(function)
                if isinstance(node, ast.Name) and node.id == "primary"
            )
        handed = {id(call.args[0]) for call in ast.walk(function) if isinstance(call, ast.Call) and call.args}
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.attr in MANAGERS and node.value.id in models_of_traces() and id(node) not in handed:
                yield node.lineno, f"rows are in a database: db.rows({ast.unparse(node)})"
            if path.startswith(READS) and node.value.id == "db" and node.attr in ("cursor", "connection", "atomic"):
                yield (
                    node.lineno,
                    f"reads may be on the replica: db.read_cursor() and the like instead of db.{node.attr}",
                )


def _writes(source: str) -> Iterable[int]:
    """Yield the lines that write rows of messages or of what is below them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITES_SQL.search(node.value):
            yield node.lineno
        if isinstance(node, ast.Call) and WRITES_ROWS.match(ast.unparse(node).removeprefix("db.")):
            yield node.lineno


@cache
def models_of_traces() -> frozenset[str]:
    """Return the names of the models whose rows are where the traces of their project are."""
    models = chain.from_iterable(
        ast.parse((ROOT / app / "models.py").read_text()).body for app in ("messages_app", "traces_app")
    )
    named = {
        node.name
        for node in models
        if isinstance(node, ast.ClassDef) and "Model" in "".join(map(ast.unparse, node.bases))
    }
    return frozenset(named - OF_THE_PRIMARY)


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


def test_few_modules_know_of_several_databases() -> None:
    found = [path for path in files() if SEVERAL_DATABASES.search((ROOT / path).read_text())]
    assert "access_app/places.py" in found
    assert len(found) < MOST_THAT_KNOW, found


def test_nothing_is_handed_down_in_context_variables() -> None:
    """Who reads, where, and who acts are arguments; the id of a request is for the log, which everything writes."""
    found = [path for path in files() if "ContextVar" in (ROOT / path).read_text()]
    assert found == ["tracesite/http/request_ids.py"]


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
        ("traces_app/queries/seals.py", "def f(db):\n    db.cursor()", "may be on the replica"),
        ("traces_app/views/tools.py", "def f():\n    return primary.rows(Tool.objects)", "than the primary"),
        ("traces_app/ingest/store.py", "from django.db import connection, models", "of the `Database`"),
        ("traces_app/ingest/store.py", "def f(db):\n    return Message.objects.get()", "db.rows(Message.objects)"),
        (
            "traces_app/new.py",
            "def f(db):\n    db.rows(ToolCall.objects).filter(pk=1).update(args={})",
            "the log of changes",
        ),
        ("traces_app/new.py", "S = 'UPDATE messages_app_message SET content = 1'", "the log of changes"),
        ("traces_app/utils.py", "", "says nothing"),
        ("traces_app/__init__.py", '"""Doc."""\nfrom .records import Message', "a docstring only"),
        ("traces_app/views.py", "x = Redacted(session=s, receipts=[], message_receipts=[])", "unredacted"),
    ],
)
def test_forbidden_import_is_found(path: str, source: str, reason: str) -> None:
    found = violations(path, source)
    assert found
    assert all(reason in violation for violation in found)


def test_only_the_runner_of_jobs_and_that_of_traces_catch_every_exception() -> None:
    """They log and note the failure, which must not end the thread of the job, or keep all other traces."""
    found = [path for path in files() if broad_handlers((ROOT / path).read_text())]
    assert found == ["traces_app/maintenance/jobs.py", "traces_app/spans/projector.py"]
