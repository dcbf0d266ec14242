"""Test the dependencies of the SDK, read from its imports: it needs neither Django nor the server, and its rooms point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sdk.tests.imports import SAY_NOTHING, broad_handlers, calls_of, circles, files_of, imports_of, module_arrows
from sdk.tests.paths import ROOT, SOURCES

SDK = "tracesite_sdk"
HOME = SOURCES.parent
FILES = files_of(HOME, [SDK])
TEXTS = {path: (HOME / path).read_text() for path in FILES}
# The rooms from the ground up: each may import those before it. What users import by name stands above them all.
FLOORS = [
    "redaction",
    "records",
    "normalize",
    "results",
    "transcripts",
    "spans",
    "eko",
    "formats",
    "events",
    "recorder",
    "reading",
]
# The same in the room of the recorder.
RECORDER = [
    "guard",
    "capture",
    "delivery",
    "scopes",
    "snapshots",
    "instruments",
    "recording",
    "time_machine",
    "tracking",
]
SERVER = ("django", "rest_framework", "psycopg", "gettext", "access_app", "messages_app", "traces_app", "tracesite")
FACE = f"{SDK}/__init__.py"  # every module imports its package, and it loads the recorder when that is used
GUARD = f"{SDK}/recorder/guard.py"


def violations(path: str, source: str) -> list[str]:
    """Return the violations in one file, each with its line and reason."""
    return [
        f"{path}:{line}: {reason}"
        for line, module in imports_of(path, source)
        if (reason := _server(module) or _wrong_floor(path, module) or _wrong_format(path, module))
    ]


def _server(module: str) -> str | None:
    if module.split(".")[0] in SERVER:
        return f"imports {module}, which is not where an agent runs"
    return None


def _wrong_floor(path: str, module: str) -> str | None:
    below, above = path.removesuffix(".py").split("/"), module.split(".")
    if above[0] != SDK or len(above) < 2:
        return None
    for floors, level in ((FLOORS, 1), (RECORDER, 2)):
        lower, higher = (parts[level] if len(parts) > level else "" for parts in (below, above))
        if level == 2 and not below[1] == above[1] == "recorder":
            break
        if lower in floors and higher in floors and floors.index(higher) > floors.index(lower):
            return f"{lower} may not know {higher}: it is on a floor above"
    return None


def _wrong_format(path: str, module: str) -> str | None:
    other = module.removeprefix(f"{SDK}.formats.")
    if other == module:
        return None
    if path.startswith(f"{SDK}/formats/") and not path.endswith(("/registry.py", "/__init__.py")):
        return f"a format knows no other: {other}"
    return None


def test_sdk_needs_no_server_and_its_rooms_point_one_way() -> None:
    assert [violation for path in FILES for violation in violations(path, TEXTS[path])] == []


def test_tests_need_no_server_either() -> None:
    others = {*SERVER, "tests", "benchmarks", "examples"}
    paths = files_of(ROOT, ["sdk/tests"])
    assert f"sdk/tests/{Path(__file__).name}" in paths
    imported = [(path, module) for path in paths for _line, module in imports_of(path, (ROOT / path).read_text())]
    assert [(path, module) for path, module in imported if module.split(".")[0] in others] == []


def test_every_room_stands_on_a_floor() -> None:
    assert {path.split("/")[1] for path in FILES if path.count("/") > 1} == set(FLOORS) - {"results"}
    rooms = {path.removesuffix(".py").split("/")[2] for path in FILES if path.startswith(f"{SDK}/recorder/")}
    assert rooms - {"__init__"} == set(RECORDER)


def test_files_are_named_for_their_topics() -> None:
    assert [path for path in FILES if Path(path).stem in SAY_NOTHING] == []


def test_modules_have_no_import_circles() -> None:
    arrows = module_arrows(HOME, [path for path in FILES if path != FACE])
    assert f"{SDK}.recorder.scopes" in arrows[f"{SDK}.recorder.recording"]
    assert circles(arrows) == []


def test_circle_through_three_packages_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("path", "source", "reason"),
    [
        ("records/__init__.py", "from django.db import models", "not where an agent runs"),
        ("formats/pi.py", "def f():\n    from gettext import gettext", "not where an agent runs"),
        ("formats/pi.py", "from . import openai_chat", "a format knows no other"),
        ("transcripts/parsing/requests.py", "from tracesite_sdk.formats import pi", "transcripts may not know formats"),
        ("records/ids.py", "from ..formats import registry", "records may not know formats"),
        ("recorder/guard.py", "from .recording import Recorder", "guard may not know recording"),
    ],
)
def test_forbidden_import_is_found(path: str, source: str, reason: str) -> None:
    (found,) = set(violations(f"{SDK}/{path}", source)[:1])
    assert reason in found


def test_only_redacted_makes_redacted_records() -> None:
    assert [path for path in FILES if calls_of(TEXTS[path], "Redacted")] == [f"{SDK}/normalize/redacted.py"]


def test_only_privacy_makes_clean_events() -> None:
    assert [path for path in FILES if calls_of(TEXTS[path], "Clean")] == [f"{SDK}/recorder/delivery/privacy.py"]


def test_broad_handlers_are_found() -> None:
    source = "try:\n pass\nexcept:\n pass\ntry:\n pass\nexcept (ValueError, Exception):\n pass\nwith suppress(Exception): pass"
    assert broad_handlers(source) == [3, 7, 9]
    assert broad_handlers("try:\n pass\nexcept ValueError:\n pass\nwith suppress(OSError): pass") == []


def test_only_guard_catches_every_exception() -> None:
    assert [path for path in FILES if broad_handlers(TEXTS[path])] == [GUARD]


def test_recorder_modules_read_no_private_names_of_others() -> None:
    """Private names are those of an imported module or of a scope's recorder; those of a class's own bases are allowed."""
    owners = {"recorder", "_recorder", "runtime", "_runtime", "pipeline", "sink"}
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path in FILES
        if path.startswith(f"{SDK}/recorder/")
        for node in ast.walk(ast.parse(TEXTS[path]))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if ast.unparse(node.value).split(".")[-1] in owners
    ]
    assert found == []
