"""Test that the transcript samples of the import benchmark are read completely."""

from __future__ import annotations

from pathlib import Path

import pytest

from access_app.db import primary
from benchmarks import transcript_samples
from traces_app.imports.importer import import_paths
from traces_app.imports.reports import FileReport
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import file_source, read


@pytest.mark.parametrize("name", transcript_samples.FORMATS)
def test_sample_is_recognised_and_yields_all_turns(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(transcript_samples.document(name, 40_000))
    found = format_of(read(file_source(path), lambda _where, _why: None))
    assert found is not None
    assert name == found.NAME
    report = read_only(path)
    turns = report.counts.tool_results
    assert turns > 3
    assert (report.counts.tool_calls, report.counts.errors, report.left_out) == ({"run_tests": turns}, {}, [])


def read_only(path: Path) -> FileReport:
    (report,) = import_paths(primary, [path], None)
    assert (report.status, report.reason) == ("read", "")
    return report


@pytest.mark.parametrize(("shape", "sessions"), [("small-sessions", 8), ("one-session", 1)])
def test_lines_form_small_sessions_or_one_session(shape: str, sessions: int, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert transcript_samples.write(path, shape, 50_000) == path.stat().st_size >= 50_000
    assert read_only(path).counts.sessions == sessions
