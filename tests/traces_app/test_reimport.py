"""Importing again: a folder that holds several states of one session of Claude Code changes nothing the second time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from access_app.models import Project
from messages_app.models import Message
from traces_app.imports import import_paths

from .formats.test_claude_code import FILES, QUEUED, SHARED, again, done, line, text, use
from .test_imports import stored

PARTS = [
    line("user", "u1", "Go"),
    line("assistant", "a1", [text("Let me look.")], 1),
    line("assistant", "a2", [use("toolu_1")], 2),
    line("user", "u2", [done("toolu_1")], 3),
    line("assistant", "a3", [text("Done.")], 4, id="msg_3"),
    line("assistant", "a4", [text(" Really.")], 5, id="msg_3"),
    again(line("assistant", "a4", [text(" Really.")], 5, id="msg_3")),
]
AT_ONCE = [*PARTS[:4], *({**one, "timestamp": PARTS[4]["timestamp"]} for one in PARTS[4:])]
"""The lines of one answer may have the same time."""
LARGEST = 300_000
"""Characters of the real files that are imported state by state."""


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="again")


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def imported(path: Path, project: Project) -> None:
    for report in import_paths([path], project.pk):
        assert report.status == "read", report.reason


def state(project: Project) -> tuple[list[Any], list[Any]]:
    """What is stored, and how often each message was written."""
    return stored(project), list(Message.objects.filter(project=project).values_list("id", "version").order_by("id"))


def real_files() -> list[Any]:
    found = [name for name in FILES if (SHARED / name).stat().st_size < LARGEST]
    return found or [pytest.param("", marks=pytest.mark.skip("the shared data are not on this machine"))]


@pytest.mark.parametrize("lines", [PARTS, AT_ONCE, QUEUED], ids=["parts", "at once", "queued"])
def test_earlier_state_of_a_session_takes_nothing_back(lines: list[Any], project: Project, tmp_path: Path) -> None:
    imported(write(tmp_path / "whole.jsonl", lines), project)
    before = state(project)
    for length in range(1, len(lines) + 1):
        imported(write(tmp_path / "start.jsonl", lines[:length]), project)
        assert state(project) == before, length


@pytest.mark.parametrize("name", real_files())
def test_earlier_state_of_a_real_session_takes_nothing_back(name: str, project: Project, tmp_path: Path) -> None:
    rows = [
        json.loads(row) for row in (SHARED / name).read_text().splitlines() if row.startswith("{") and _is_json(row)
    ]
    imported(write(tmp_path / "whole.jsonl", rows), project)
    before = state(project)
    for length in range(1, len(rows), max(1, len(rows) // 6)):
        imported(write(tmp_path / "start.jsonl", rows[:length]), project)
        assert state(project) == before, length


def test_folder_of_several_states_is_stable_when_imported_again(project: Project, tmp_path: Path) -> None:
    for length in (2, 5, 6, 7):
        write(tmp_path / f"state-{length}.jsonl", PARTS[:length])
    imported(tmp_path, project)
    before = state(project)
    imported(tmp_path, project)
    assert state(project) == before
    ((*_session, messages),) = before[0]
    assert [message[2] for message in messages] == ["Go", "Done.  Really."]


def _is_json(row: str) -> bool:
    try:
        json.loads(row)
    except ValueError:
        return False
    return True
