"""Test that the benchmarks run on small data and compare equal work. No times are checked."""

from __future__ import annotations

import json
import pkgutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

import benchmarks
from access_app.db import primary
from access_app.models import Project
from benchmarks import span_load
from benchmarks.event_load import EventLoad
from benchmarks.floor_events import EventFloor
from benchmarks.floor_ingest import WAYS, Floor, Write
from benchmarks.floor_spans import SpanFloor, both
from benchmarks.report import Line, at_least, at_most
from benchmarks.workload import CALLS, RARE_TOOL, STEPS, TOOLS, Workload, of_reading
from messages_app.models import Message
from messages_app.sql.periods import Period
from sdk.tests.length import at_length
from sdk.tests.paths import ROOT
from traces_app.events.decode import decode_events
from traces_app.events.store import record_events
from traces_app.ingest.decode import decode_ingest
from traces_app.ingest.partitions import ensure_periods
from traces_app.ingest.pipeline import ingest
from traces_app.models import AgentStep, Event, Tool, ToolCall, ToolResult
from traces_app.models import Span as SpanRow
from traces_app.queries.messages import messages
from traces_app.spans.deliveries import record_spans
from traces_app.spans.stored import spans_of
from tracesite.foreign_apis.otlp.protobuf import decode_traces
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.system

SMALL = "--messages 40 --runs 1 --shapes 1x1 1x20 --scale 0.01 --seconds 0.005 --workers 1"


@at_length
def test_small_run_measures_every_line_with_its_floor(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run(*SMALL.split(), "--json", str(report))
    lines = {line["name"]: line for line in json.loads(report.read_text())["lines"]}
    assert [name for name in lines if not name.startswith(" ")] == [
        "the data set: 40 messages",
        "stored a message, of JSON",
        "one message",
        "nested page of 50 of a session",
        "nested page of 50 of a project",
        "nested page of 50 at depth 90 %",
        "failed calls of a tool in two hours, 50",
        "messages with query_database, 50",
        "messages with refund_payment, 50",
        "list of 50 sessions",
        "page at depth 90 % beside page 1",
        "admin: 50 sessions",
        "admin: 50 messages",
        "admin: a run with its calls",
        "admin: a conversation",
        "ingest, 1 x 1",
        "ingest, 1 x 20",
        "OTLP, 1 x 1, acknowledged",
        "OTLP, 1 x 1, can be read",
        "OTLP, 4 x 20, acknowledged",
        "OTLP, 4 x 20, can be read",
        "events, 1 x 1",
        "events, 4 x 1",
        "events, 1 x 20",
        "events, 4 x 20",
        "events, 1 x 20, runs of 2,000",
        "peak memory of a worker, batches of 0.5 MB",
        *(f"import {name}, {what}" for name in ("openai_chat", "claude_code") for what in ("read", "stored")),
        "purge a month of 1,000 beside 100",
        "purge 100 by rows",
    ]
    alone = {"the data set: 40 messages", "peak memory of a worker, batches of 0.5 MB"}
    for name, line in lines.items():
        assert line["figure"] > 0, name
        assert (line["ratio"] is None) == (name in alone or name.startswith(" ")), name


def test_every_benchmark_finds_what_it_imports() -> None:
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "__main__"]
    assert {import_module(f"benchmarks.{name}").__name__ for name in names} == {f"benchmarks.{name}" for name in names}


def programs() -> Iterator[str]:
    """Return the modules that CONTRIBUTING and docs start by `python -m`, besides those that make samples."""
    for file in sorted(Path(benchmarks.__path__[0]).rglob("*.py")):
        if '__name__ == "__main__"' in (text := file.read_text()) and "ArgumentParser" in text:
            yield ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")


@pytest.mark.system
@pytest.mark.parametrize("module", list(programs()))
def test_program_starts(module: str) -> None:
    # In a process of its own, because what imports models before Django is set up fails only there.
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr[-3000:]


def run(*arguments: str) -> str:
    """Return the output of `python -m benchmarks`, run in a separate database on the test server."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# --- The floor ------------------------------------------------------------------------------------------------------

PLACES = ("id", "uuid", "session_id", "updated_at", "redactions")
"""Columns that differ, because the floor creates ids differently and does not redact."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("way", "write"), WAYS)
def test_ingest_floor_stores_the_same_rows_as_the_server(way: str, write: Write) -> None:
    work = Workload(name="same", begin=datetime(2025, 6, 1, tzinfo=UTC))
    # The first has a secret in it.
    body = work.batch(range(1, 9))
    projects = [Project.objects.create(slug=slug) for slug in ("floor", "server")]
    Tool.objects.bulk_create([Tool(project=project, name=name) for project in projects for name in TOOLS])
    ensure_periods(primary, [Period.month(2025, 6)])
    floor = Floor(make_conninfo("", **parameters_of_connection()), projects[0].pk, tail=1)
    write(floor, body)
    floor.close()
    ingest(primary, projects[1].pk, decode_ingest(body, ndjson=False))
    by_floor, by_server = (content(stored_in(project)) for project in projects)
    assert len(by_server) == 8
    assert by_server == by_floor


@pytest.mark.django_db(transaction=True)
def test_span_floor_stores_the_same_spans_and_messages() -> None:
    work = Workload(name="same", begin=datetime(2025, 6, 1, tzinfo=UTC))
    # Without the first, which has a secret in it.
    numbers = range(2, 6)
    projects = [Project.objects.create(slug=slug) for slug in ("floor", "server")]
    Tool.objects.bulk_create([Tool(project=project, name=name) for project in projects for name in TOOLS])
    ensure_periods(primary, [Period.month(2025, 6)])
    spans = span_load.request(work, numbers, b"12345")
    floor = SpanFloor(make_conninfo("", **parameters_of_connection()), projects[0].pk, tail=1)
    floor.copy_both(both(work.batch(numbers), spans))
    floor.close()
    assert record_spans(primary, projects[1].pk, decode_traces(spans)).accepted == 13 * len(numbers)
    by_floor, by_server = (
        [
            spans_of(primary, project.pk, trace_id.hex)
            for trace_id in sorted(set(SpanRow.objects.filter(project=project).values_list("trace_id", flat=True)))
        ]
        for project in projects
    )
    assert [len(of_trace) for of_trace in by_server] == [13] * len(numbers)
    assert by_server == by_floor
    for model in (Message, ToolCall):
        assert model.objects.filter(project=projects[0]).count() == model.objects.filter(project=projects[1]).count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("way", "write"), [("COPY", EventFloor.copy), ("executemany", EventFloor.insert)])
def test_event_floor_stores_the_same_rows_as_the_server(way: str, write: Callable[..., None]) -> None:
    work = Workload(name="same", begin=datetime(2025, 6, 1, tzinfo=UTC))
    bodies = EventLoad(work=work, events_a_run=40, first=1).bodies(103, 20)
    projects = [Project.objects.create(slug=slug) for slug in ("floor", "server")]
    Tool.objects.bulk_create([Tool(project=project, name=name) for project in projects for name in TOOLS])
    ensure_periods(primary, [Period.month(2025, 6)])
    floor = EventFloor(make_conninfo("", **parameters_of_connection()), projects[0].pk, tail=1)
    for body in bodies:
        write(floor, body)
        record_events(
            primary, projects[1].pk, [redact_event(event, DEFAULT_RULES) for event in decode_events(body, ndjson=False)]
        )
    floor.close()
    by_floor, by_server = map(rows_of_events, projects)
    assert [len(by_server[table]) for table in ("messages", "steps", "calls", "results", "events")] == [
        6,
        16,
        31,
        30,
        103,
    ]
    # Only the server stores a row for a call that has not ended.
    by_server["calls"] = [call for call in by_server["calls"] if call[4] != "pending"]
    assert by_server == by_floor


def rows_of_events(project: Project) -> dict[str, list[Any]]:
    below = {"message__project": project}
    return {
        table: [list(row) for row in found]
        for table, found in {
            "messages": Message.objects.filter(project=project).order_by("created_at", "role").values_list(
                "role", "content", "is_completed", "created_at", "completed_at"
            ),
            "steps": AgentStep.objects.filter(**below).order_by("message__created_at", "ordinal").values_list(
                "iteration", "ordinal", "thought", "reasoning", "agent_name", "model", "usage", "timestamp", "duration_ms"
            ),
            "calls": ToolCall.objects.filter(**below).order_by("started_at", "call_id").values_list(
                "call_id", "position", "args", "reflection", "status", "started_at", "completed_at", "duration_ms",
                "tool__name",
            ),
            "results": ToolResult.objects.filter(call__project=project).order_by("call__call_id").values_list(
                "output", "data", "error", "metadata", "attachments"
            ),
            "events": Event.objects.filter(project=project).order_by("seq").values_list(
                "seq", "external_id", "number", "type", "level", "category", "timestamp", "agent", "subject", "data"
            ),
        }.items()
    }  # fmt: skip


def parameters_of_connection() -> dict[str, Any]:
    parameters = connection.get_connection_params()
    return {name: parameters[name] for name in ("dbname", "user", "password", "host", "port") if parameters.get(name)}


def stored_in(project: Project) -> Any:
    found = Message.objects.filter(project=project).order_by("pk").values_list("pk", flat=True)
    return msgspec.json.decode(msgspec.json.encode(messages(primary, [str(message_id) for message_id in found])))


def content(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: content(item) for name, item in value.items() if name not in PLACES}
    return [content(item) for item in value] if isinstance(value, list) else value


# --- The workload and the report ----------------------------------------------------------------------------------------


def test_workload_message_is_23_kb_and_deterministic() -> None:
    sizes = [len(of_reading().batch([number])) for number in range(200)]
    assert 22_000 < statistics.mean(sizes) < 25_000
    assert of_reading().message(7) == of_reading().message(7)
    assert of_reading().message(7) != of_reading().message(8)
    steps = of_reading().message(7)["agent_steps"]
    assert (len(steps), [len(step["tool_calls"]) for step in steps]) == (STEPS, [CALLS] * STEPS)


def test_workload_rare_tool_is_in_at_most_a_tenth_of_messages() -> None:
    names = [
        {call["name"] for step in of_reading().message(number)["agent_steps"] for call in step["tool_calls"]}
        for number in range(300)
    ]
    assert 0 < sum(RARE_TOOL in of_message for of_message in names) <= 30


def test_workload_sessions_interleave() -> None:
    work = Workload(name="w", begin=datetime(2025, 1, 1, tzinfo=UTC), messages_a_session=3, sessions_at_once=2)
    assert [work.place(n) for n in range(8)] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 0), (3, 0)]


def test_line_uses_medians_and_the_best_floor() -> None:
    line = Line(
        name="x",
        unit="msg/s",
        runs=[300, 100, 200],
        floors={"COPY": [400, 500, 600], "executemany": [100, 9000, 200]},
        better="more",
        bar=at_least(0.5),
    )
    assert (line.figure, line.best_floor, line.floor, line.ratio, line.is_met) == (200, "COPY", 500, 0.4, False)


def test_bar_without_floor_applies_to_the_figure() -> None:
    line = Line(name="x", unit="MB", runs=[250], bar=at_most(300))
    assert (line.ratio, line.is_met, str(line.bar)) == (None, True, "≤ 300")


@at_length
def test_recorder_benchmark_runs_without_other_packages(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.recorder", "--rounds", "2", "--calls", "100", "--json", str(figures)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    lines = {line["name"]: line["figure"] for line in json.loads(figures.read_bytes())["lines"]}
    assert lines["with: kept of a burst of 20,000"] == 20_000
    assert {"with: p50 of a call", "decorator: CPU of a call", "with: memory of a waiting call"} <= lines.keys()
