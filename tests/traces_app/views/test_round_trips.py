"""Import of an export: no change in its own project, the same trace in another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import answer, question, store
from traces_app.imports.importer import import_paths
from traces_app.imports.reports import FileReport
from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller
from .test_sessions import _said

_OF_THE_PLACE = ("id", "project", "external_id", "updated_at", "active_at")
"""The fields of a session that depend on where it is stored."""


def imported(path: Path, document: bytes | str, project: Project) -> FileReport:
    path.write_bytes(document if isinstance(document, bytes) else document.encode())
    (report,) = import_paths(primary, [path], project.pk)
    assert (report.status, report.format, report.left_out) == ("read", "own_export", [])
    return report


def trace(export: dict[str, Any]) -> Any:
    head = {name: value for name, value in export.items() if name not in (*_OF_THE_PLACE, "messages")}
    return head, [_said(message) for message in export["messages"]]


def test_importing_an_export_again_changes_nothing(
    viewer: Caller, project: Project, weather: SessionOutcome, tmp_path: Path
) -> None:
    before = viewer.get("sessions/weather/export/")
    report = imported(tmp_path / "a.json", before.body, project)
    assert dict(report.stored) == {"unchanged": len(before.json["messages"])}
    assert viewer.get("sessions/weather/export/").json == before.json


def test_export_of_session_without_external_id_is_recognised(viewer: Caller, project: Project, tmp_path: Path) -> None:
    session = store(project, question(), answer(), external_id=None)
    before = viewer.get(f"sessions/{session.id}/export/")
    assert before.json["external_id"] == ""
    imported(tmp_path / "a.json", before.body, project)
    assert viewer.get(f"sessions/{session.id}/export/").json == before.json
    assert len(viewer.get("sessions/").results) == 1


def test_export_imported_elsewhere_gives_the_same_trace(
    viewer: Caller, outsider: Caller, stranger: Project, weather: SessionOutcome, tmp_path: Path
) -> None:
    before = viewer.get("sessions/weather/export/")
    for state in ("created", "unchanged"):
        report = imported(tmp_path / "a.json", before.body, stranger)
        assert dict(report.stored) == {state: len(before.json["messages"])}
    after = outsider.get("sessions/weather/export/").json
    assert trace(after) == trace(before.json)
    assert [message["external_id"] for message in after["messages"]] == [
        message["external_id"] or message["id"] for message in before.json["messages"]
    ]


def test_lines_of_records_are_sessions(outsider: Caller, stranger: Project, tmp_path: Path) -> None:
    record = {"external_id": "s-1", "messages": [{"external_id": "m", "role": "user", "content": "Go"}]}
    lines = "\n".join(json.dumps(line) for line in (record, {**record, "external_id": "s-2"}))
    for state in ("created", "unchanged"):
        assert dict(imported(tmp_path / "a.ndjson", lines, stranger).stored) == {state: 2}
    assert sorted(session["external_id"] for session in outsider.get("sessions/").results) == ["s-1", "s-2"]


def test_inputs_of_an_export_are_imported(
    viewer: Caller, outsider: Caller, project: Project, stranger: Project, tmp_path: Path
) -> None:
    asked = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Where?"}]
    steps = [
        {"iteration": n, "input": {"messages": asked[: n + 1], "system": "Be kind.", "tools": [{"name": "f"}]}}
        for n in (0, 1)
    ]
    store(project, question(), {**answer(), "agent_steps": steps}, external_id="asked")
    before = viewer.get("sessions/asked/export/")
    assert b'"contextRef"' in before.body
    imported(tmp_path / "a.json", before.body, stranger)
    messages = outsider.get("sessions/asked/messages/?role=assistant").results
    nested = outsider.get(f"messages/{messages[0]['id']}/?expand=inputs").json
    found = [step["input"] for step in nested["agent_steps"]]
    assert [one["messages"] for one in found] == [asked[:1], asked]
    assert {(one["system"], str(one["tools"])) for one in found} == {("Be kind.", "[{'name': 'f'}]")}
    assert trace(outsider.get("sessions/asked/export/").json) == trace(before.json)
