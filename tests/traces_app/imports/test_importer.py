"""Import of files and folders: rows, reports, and idempotence."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import tarfile
import threading
import zipfile
from collections import Counter
from collections.abc import Callable
from io import BufferedReader, BytesIO, StringIO, TextIOWrapper
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.writes import delete_session
from sdk.tests import steps
from sdk.tests.length import examples
from sdk.tests.paths import SHARED, TRANSCRIPTS
from traces_app.imports import archives, importer, storing
from traces_app.imports.importer import import_paths, import_source
from traces_app.imports.reports import Counts, FileReport
from traces_app.ingest.batch import Refusal
from traces_app.management.commands import import_transcripts
from traces_app.models import AgentStep, ToolCall, ToolResult
from tracesite_sdk.formats import openai_chat
from tracesite_sdk.transcripts import outline
from tracesite_sdk.transcripts.documents import Source
from tracesite_sdk.transcripts.entries import Transcript
from tracesite_sdk.transcripts.outline import DIGEST_BYTES

from .test_archives import zip_archives

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Weather in 上海?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "上海"}'}},
            {"id": "c2", "type": "function", "function": {"name": "get_weather", "arguments": "{broken"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "31 °C"},
    {"role": "tool", "tool_call_id": "c2", "content": "Error: unknown city"},
    {"role": "assistant", "content": "It is 31 °C."},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You are welcome."},
]


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="imports")


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document, ensure_ascii=False))
    return path


def import_file(path: Path, project_id: int) -> FileReport:
    (report,) = import_paths(primary, [path], project_id)
    return report


def imported(path: Path, project: Project) -> FileReport:
    report = import_file(path, project.pk)
    assert (report.status, report.reason) == ("read", "")
    return report


def stored(project: Project) -> list[Any]:
    """Return all rows of a project, without fields that depend on the time of import, in reading order."""
    sessions = []
    for session in Session.objects.filter(project=project).order_by("external_id"):
        messages = []
        for message in Message.objects.filter(session=session).order_by("id"):
            steps = []
            for step in AgentStep.objects.filter(message=message).order_by("iteration", "ordinal"):
                calls = [
                    (
                        call.position,
                        # An id derived from ours differs between projects.
                        "" if call.call_id == f"call_{call.pk.hex[-12:]}" else call.call_id,
                        call.tool.name,
                        call.args,
                        call.status,
                        call.metadata,
                        (call.result.output, call.result.error, call.result.attachments)
                        if call.status != "pending"
                        else None,
                    )
                    for call in ToolCall.objects.filter(step=step).order_by("position")
                ]
                steps.append((step.iteration, step.thought, step.reasoning, step.agent_name, step.metadata, calls))
            messages.append(
                (
                    message.external_id,
                    message.role,
                    message.content,
                    message.content_parts,
                    message.health,
                    message.metadata,
                    (message.step_count, message.call_count, message.failure_count),
                    message.created_at - session.created_at,
                    steps,
                )
            )
        counters = (session.message_count, session.call_count, session.failure_count)
        sessions.append((session.external_id, session.title, session.status, session.metadata, counters, messages))
    return sessions


# --- Stored rows --------------------------------------------------------------------------------------------------


def test_transcript_becomes_a_session_with_its_traces(project: Project, tmp_path: Path) -> None:
    report = imported(write(tmp_path / "talk.json", {"task_id": 7, "messages": TALK}), project)
    ((external_id, title, status, metadata, counters, messages),) = stored(project)
    assert external_id.startswith("transcript-")
    assert (title, status, counters) == ("Weather in 上海?", "completed", (5, 2, 1))
    assert metadata["task_id"] == 7
    assert [(m[0], m[1], m[2], m[7].microseconds) for m in messages] == [
        ("0", "system", "Be kind.", 0),
        ("1", "user", "Weather in 上海?", 1000),
        ("2", "assistant", "It is 31 °C.", 2000),
        ("6", "user", "Thanks!", 3000),
        ("7", "assistant", "You are welcome.", 4000),
    ]
    assert messages[2][8] == [
        (
            0,
            "I look.",
            "",
            "",
            {},
            [
                (0, "c1", "get_weather", {"city": "上海"}, "success", {}, ("31 °C", "", [])),
                (1, "c2", "get_weather", {"_raw": "{broken"}, "error", {}, ("Error: unknown city",) * 2 + ([],)),
            ],
        )
    ]
    assert report.stored == {"created": 5}


def test_airline_conversations_match_independent_counts(project: Project) -> None:
    path = SHARED / "openai_chat" / "tau_bench_gpt4o_airline_first40.json"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    expected = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())["openai_chat/" + path.name]

    def figures() -> dict[str, Any]:
        calls = list(ToolCall.objects.filter(project=project).select_related("tool", "result"))
        return {
            "sessions": Session.objects.filter(project=project).count(),
            "user": Message.objects.filter(project=project, role="user").count(),
            "tool_calls_by_name": dict(Counter(call.tool.name for call in calls)),
            "tool_results": sum(hasattr(call, "result") for call in calls),
            "errors_by_tool": dict(Counter(call.tool.name for call in calls if call.status == "error")),
        }

    same = ("sessions", "tool_calls_by_name", "tool_results", "errors_by_tool")
    counted = {"user": expected["messages_by_role"]["user"], **{name: expected[name] for name in same}}
    imported(path, project)
    assert figures() == counted
    report = imported(path, project)
    assert figures() == counted
    assert report.stored == {"unchanged": 721}


def test_second_import_changes_nothing(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", TALK)
    imported(path, project)
    before = stored(project), list(Message.objects.values("id", "version", "created_at", "updated_at").order_by("id"))
    # The name and the date of the file do not matter.
    assert imported(path.rename(tmp_path / "other.json"), project).stored == {"unchanged": 5}
    assert (
        stored(project),
        list(Message.objects.values("id", "version", "created_at", "updated_at").order_by("id")),
    ) == before


def test_longer_version_of_file_adds_its_new_entries(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    imported(write(path, TALK[:4]), project)
    assert imported(write(path, TALK), project).stored == {"unchanged": 2, "updated": 1, "created": 2}
    assert [m[7].microseconds for m in stored(project)[0][5]] == [0, 1000, 2000, 3000, 4000]


def result(call_id: str | None, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def asks(*call_ids: str) -> dict[str, Any]:
    calls = [{"id": call_id, "function": {"name": "a", "arguments": '{"q": 1}'}} for call_id in call_ids]
    return {"role": "assistant", "content": "I look.", "tool_calls": calls}


_BEGINNING = [{"role": "user", "content": "Go"}, asks("c1"), result("c1", "one")]


@pytest.mark.parametrize(
    ("start", "rest", "health"),
    [
        pytest.param(_BEGINNING[:1] + [result("c9", "early")], [asks("c9")], [], id="in its own step"),
        pytest.param([*_BEGINNING, result("c9", "early")], [asks("c9"), TALK[-1]], [], id="in a step with calls"),
        pytest.param([*_BEGINNING, result("c9", "early")], [asks("c2"), asks("c9")], [], id="after another call"),
        pytest.param(
            [*_BEGINNING, result("c9", "early"), result(None, "stray"), result("c8", "other")],
            [asks("c9")],
            ["orphan_result"],
            id="beside other orphans",
        ),
        pytest.param(
            [*_BEGINNING, result("c9", "early"), result("c9", "again")],
            [asks("c9")],
            ["orphan_result"],
            id="of two results",
        ),
    ],
)
def test_placeholder_of_early_result_is_replaced_by_its_call(
    db: None, tmp_path: Path, start: list[Any], rest: list[Any], health: list[str]
) -> None:
    at_once, in_parts = (Project.objects.create(slug=slug) for slug in ("at-once", "in-parts"))
    whole, cut = write(tmp_path / "whole.json", start + rest), write(tmp_path / "cut.json", start)
    for path in (cut, whole):
        imported(path, in_parts)
    imported(whole, at_once)
    expected = stored(at_once)
    assert (expected[0][5][1][4], stored(in_parts)) == (health, expected)
    # An earlier snapshot does not bring the placeholder back.
    for project in (at_once, in_parts):
        imported(cut, project)
        assert stored(project) == expected
    assert ToolResult.objects.count() == ToolCall.objects.filter(status="success").count()


_calls = st.lists(
    st.builds(
        lambda id_, name, arguments: {"id": id_, "function": {"name": name, "arguments": arguments}},
        st.sampled_from(["c1", "c2", "c9", None]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["{}", '{"q": 1}', "{broken"]),
    ),
    min_size=1,
    max_size=3,
)
_conversation = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, st.sampled_from(["Go", "Hurry", ["x"]])),
        st.just({"role": "system", "content": "Be kind."}),
        st.builds(lambda text: {"role": "assistant", "content": text}, st.sampled_from(["Done.", "Wait."])),
        st.builds(lambda calls: {"role": "assistant", "content": "I look.", "tool_calls": calls}, _calls),
        st.builds(
            lambda id_, text: {"role": "tool", "tool_call_id": id_, "content": text},
            st.sampled_from(["c1", "c2", "c9", None]),
            st.sampled_from(["31 °C", "Error: no"]),
        ),
    ),
    min_size=2,
    max_size=12,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=examples(15),
)
@given(messages=_conversation, data=st.data(), is_list=st.booleans())
def test_importing_start_then_whole_equals_importing_whole(
    db: None, tmp_path: Path, messages: list[Any], data: st.DataObject, is_list: bool
) -> None:
    at_once, in_parts = (Project.objects.create(slug=f"p{Project.objects.count()}") for _ in range(2))
    path = tmp_path / "talk.json"
    start = messages[: data.draw(st.integers(1, len(messages)), "cut")]
    for part in (start, messages):
        import_file(write(path, [part, [TALK[1]]] if is_list else part), in_parts.pk)
    import_file(path, at_once.pk)
    assert stored(in_parts) == stored(at_once)


def test_start_imported_after_whole_changes_nothing(project: Project, tmp_path: Path) -> None:
    imported(write(tmp_path / "whole.json", TALK), project)
    before = stored(project)
    for cut in range(2, len(TALK)):
        imported(write(tmp_path / "start.json", TALK[:cut]), project)
        assert stored(project) == before


def test_start_that_ends_within_a_turn_removes_nothing(project: Project, tmp_path: Path) -> None:
    first, asks = {"role": "assistant", "content": "Let me see."}, {**TALK[2], "content": None}
    talk = [*TALK[:2], first, asks, *TALK[3:]]
    imported(write(tmp_path / "talk.json", {"messages": talk, "status": "done"}), project)
    before = stored(project)
    report = imported(write(tmp_path / "start.json", {"messages": talk[:3], "status": "at work"}), project)
    assert (stored(project), report.stored) == (before, {"unchanged": 3})


def test_two_runs_of_one_task_are_two_sessions_in_any_order(db: None) -> None:
    runs = [TRANSCRIPTS / "broken_arguments.json", TRANSCRIPTS / "broken_arguments_again.json"]
    for order in (runs, runs[::-1]):
        project = Project.objects.create(slug=f"runs{Project.objects.count()}")
        for path in [*order, *order]:
            imported(path, project)
        assert [session[4] for session in stored(project)] == [(3, 3, 1)] * 2


HELP = [{"role": "user", "content": "Help me"}, {"role": "assistant", "content": "Sure, with what?"}]
INVOICE = [*HELP, {"role": "user", "content": "My invoice"}, {"role": "assistant", "content": "Invoice answer"}]
TRIP = [*HELP, {"role": "user", "content": "My trip"}, {"role": "assistant", "content": "Trip answer"}]
TRAIN = [*TRIP[:3], {"role": "assistant", "content": "By train."}]


def contents(project: Project) -> list[tuple[str, list[str]]]:
    """Return the contents and the title of each session."""
    return sorted((title, [message[2] for message in said]) for _id, title, _status, _meta, _n, said in stored(project))


def said_in(talk: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in talk]


def test_conversations_with_own_ids_stay_separate(project: Project, tmp_path: Path) -> None:
    write(tmp_path / "day1.json", {"id": "day1", "title": "Invoice", "messages": INVOICE})
    write(tmp_path / "day2.json", {"id": "day2", "title": "Trip", "messages": TRIP})
    for state in ("created", "unchanged"):
        assert [report.stored for report in import_paths(primary, [tmp_path], project.pk)] == [{state: 4}] * 2
        assert contents(project) == [("Invoice", said_in(INVOICE)), ("Trip", said_in(TRIP))]


@pytest.mark.parametrize("order", list(permutations([INVOICE, TRIP, TRAIN])))
def test_conversations_that_diverge_late_are_separate_sessions(
    project: Project, tmp_path: Path, order: list[list[dict[str, Any]]]
) -> None:
    path = tmp_path / "talk.json"
    for talk in order:
        # In the order of import: first up to the divergence, then whole.
        imported(write(path, talk[:3]), project)
        imported(write(path, talk), project)
    expected = sorted(("Help me", said_in(talk)) for talk in order)
    assert contents(project) == expected
    before = stored(project)
    for talk in [*order[::-1], HELP, *(talk[:3] for talk in order)]:
        assert set(imported(write(path, talk), project).stored) == {"unchanged"}
    assert stored(project) == before


def test_other_conversation_with_used_id_is_renamed_and_reported(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    assert imported(write(path, {"id": "help", "messages": INVOICE}), project).renamed == []
    for _time in range(2):
        ((own, name),) = imported(write(path, {"id": "help", "messages": TRIP}), project).renamed
        assert own == "help"
        assert re.fullmatch("help-[0-9a-f]{8}", name)
        assert f"  session 'help' is another conversation: stored as '{name}'\n" in run(path, "--project", "imports")
        found = [(session[0], [message[2] for message in session[5]]) for session in stored(project)]
        assert found == [("help", said_in(INVOICE)), (name, said_in(TRIP))]


def test_id_with_unstorable_characters_is_found_again(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", {"id": "a\0b", "messages": HELP})
    assert [imported(path, project).stored for _time in range(2)] == [{"created": 2}, {"unchanged": 2}]


def test_names_of_a_batch_are_assigned_together(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    for talk in (INVOICE, TRIP, TRAIN):
        imported(write(path, talk), project)
    found = [outline.outline(Transcript(entries=tuple, place=place), "f") for place in range(3)]
    document = json.loads(path.read_text())
    (one,) = openai_chat.transcripts(document, lambda _where, _why: None)
    found += [outline.outline(one, openai_chat.NAME)] * 9
    with CaptureQueriesContext(connection) as queries:
        settled = storing._assign_names(primary, found, project.pk)
    # One lookup, and one more for each divergence.
    assert len(queries) == 3
    assert {one.name for one in settled[3:]} < {session[0] for session in stored(project)}
    assert len({one.name for one in settled[3:]}) == 1


def test_run_imported_as_requests_then_whole_is_one_session(project: Project, tmp_path: Path) -> None:
    requests = [{"model": "m", "messages": TALK[:n]} for n in (2, 5)]
    imported(write(tmp_path / "requests.json", requests), project)
    imported(write(tmp_path / "messages.json", TALK), project)
    assert [session[4] for session in stored(project)] == [(5, 2, 1)]


def test_long_session_is_stored_in_parts(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_BATCH", 3)
    other = Project.objects.create(slug="other")
    documents = [TALK[1:3], [*TALK, *TALK, *TALK], TALK[:2]]
    path = write(tmp_path / "talks.json", documents)
    assert imported(path, project).stored == {"created": 19}
    monkeypatch.undo()
    imported(path, other)
    assert stored(project) == stored(other)


def test_session_too_long_for_memory_is_stored_alike(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Project.objects.create(slug="other")
    path = tmp_path / "talk.jsonl"
    path.write_text("\n".join(json.dumps(message) for message in [*TALK, {"role": "critic"}] * 3))
    held = imported(path, other)
    monkeypatch.setattr("tracesite_sdk.transcripts.conversation.MOST_HELD", 3)
    monkeypatch.setattr(storing, "_BATCH", 3)
    report = imported(path, project)
    assert stored(project) == stored(other)
    assert (report.counts, report.left_out) == (held.counts, held.left_out)
    assert [where for where, _why in report.left_out] == ["line 9", "line 18", "line 27"]
    assert imported(path, project).stored == {"unchanged": 15}


def test_import_digests_of_session_grow_with_it(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    for cut, known in ((5, 7), (8, 10), (3, 10)):  # the texts, and two calls
        imported(write(path, TALK[:cut]), project)
        (digests,) = Session.objects.filter(project=project).values_list("import_digests", flat=True)
        assert len(digests) == known * DIGEST_BYTES


def test_deleted_session_stays_deleted_after_import(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", TALK)
    imported(path, project)
    delete_session(primary, Session.objects.get(project=project).pk, by="somebody")
    assert imported(path, project).stored == {"session_deleted": 5}
    assert stored(project) == []


def test_unstorable_characters_are_escaped_and_stored(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(
        '{"score": NaN, "big": 123456789012345678901234567890, "messages": ['
        '{"role": "user", "content": "nul \\u0000 and half a pair \\ud83d"},'
        '{"role": "assistant", "tool_calls": [{"id": "c\\u0000", "function": {"name": "a\\u0000", "arguments": "{}"}}]},'
        '{"role": "tool", "tool_call_id": "c\\u0000", "content": "\\udc00"}]}'
    )
    imported(path, project)
    ((_id, _title, _status, metadata, counters, messages),) = stored(project)
    assert (metadata["score"], metadata["big"], counters) == (None, 123456789012345678901234567890, (2, 1, 0))
    assert messages[0][2] == "nul \\u0000 and half a pair \\ud83d"


# --- Files --------------------------------------------------------------------------------------------------------


def test_broken_file_does_not_stop_the_others(project: Project, tmp_path: Path) -> None:
    write(tmp_path / "a.json", TALK[:2])
    (tmp_path / "b.json").write_text('{"messages": [')
    (tmp_path / "c.json").write_text("")
    (tmp_path / "d.txt").write_text("notes")
    write(tmp_path / "e.json", {"name": "a package"})
    (tmp_path / "f.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "g.json").write_text("[" * 100_000)
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "h.traj", {"history": TALK[1:], "trajectory": []})
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".git" / "i.json", TALK)
    reports = list(import_paths(primary, [tmp_path, tmp_path / "a.json", tmp_path / "missing.json"], project.pk))
    found = [(Path(report.path).name, report.status, report.reason.split(":")[0]) for report in reports]
    assert found == [
        (".git", "skipped", "a hidden folder"),
        ("a.json", "read", ""),
        ("b.json", "failed", "not JSON"),
        ("c.json", "failed", "the file is empty"),
        ("d.txt", "skipped", "neither JSON nor an archive"),
        ("e.json", "skipped", "not a transcript in a known format"),
        ("f.json", "failed", "not JSON"),
        ("g.json", "failed", "not JSON"),
        ("h.traj", "read", ""),
        ("missing.json", "failed", "No such file or directory"),
    ]
    assert Session.objects.filter(project=project).count() == 2


def test_named_file_without_transcript_has_failed(project: Project, tmp_path: Path) -> None:
    (report,) = import_paths(primary, [write(tmp_path / "e.json", {"name": "a package"})], project.pk)
    assert (report.status, report.reason) == ("failed", "not a transcript in a known format")


def test_named_file_with_any_suffix_is_read(project: Project, tmp_path: Path) -> None:
    (report,) = import_paths(primary, [write(tmp_path / "transcript", TALK)], project.pk)
    assert report.status == "read"


def test_broken_line_is_left_out_and_reported(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    lines = [json.dumps({"messages": TALK}), '{"messages": [', "", json.dumps({"messages": TALK[:2]}), '"text"']
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    report = imported(path, project)
    assert report.counts.sessions == 2
    assert [(where, why.split(":")[0]) for where, why in report.left_out] == [
        ("line 2", "not JSON"),
        ("line 5", "no list of messages"),
    ]


def test_report_lists_some_omissions_and_counts_the_others(project: Project, tmp_path: Path) -> None:
    report = imported(write(tmp_path / "talk.json", [TALK[1], *[{"role": "critic"}] * 120]), project)
    assert (len(report.left_out), report.left_out_count) == (50, 120)


EVALUATION: dict[str, Any] = {
    "header.json": {"version": 2, "status": "success", "eval": {"task": "t", "run_id": "r", "model": "m"}},
    "samples/1_epoch_1.json": {"id": 1, "epoch": 1, "input": "Hello", "target": "", "messages": TALK[1:]},
}


@pytest.mark.filterwarnings("ignore:Overlapped entries")  # zipfile's, which goes on
@settings(deadline=None, max_examples=examples(30))
@given(data=zip_archives({name: json.dumps(value).encode() for name, value in EVALUATION.items()}))
def test_importing_evaluation_with_wrong_numbers_ends(data: bytes) -> None:
    with steps.at_most(300_000):
        reports = list(import_source(primary, Source("log.eval", lambda: BufferedReader(BytesIO(data))), None))  # type: ignore[arg-type]
    assert {report.status for report in reports} <= {"read", "skipped", "failed"} != set()


# --- Files that take too much CPU time ----------------------------------------------------------------------------


class Spinning:
    """Calls a function, and never returns from the calls whose arguments contain "spin"."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        result = self.function(*arguments, **options)
        while "spin" in str(arguments):
            pass
        return result


@pytest.fixture
def little_time(settings: Any) -> None:
    settings.TRACESITE_REQUEST_CPU_SECONDS = 1


def talk(name: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": name}, {"role": "assistant", "content": "Yes."}]


@pytest.mark.usefixtures("little_time")
def test_file_that_spins_fails_and_others_are_imported(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "outline", Spinning(importer.outline))
    handler = signal.getsignal(signal.SIGPROF)
    for name in ("a", "spin", "z"):
        write(tmp_path / f"{name}.json", {"id": name, "messages": talk(name)})
    out = StringIO()
    with pytest.raises(CommandError, match=r"^1 of 3 files failed\.$"):
        call_command("import_transcripts", str(tmp_path), project="imports", stdout=out)
    assert f"{tmp_path}/spin.json: failed: took more than 1 s of CPU time\n" in out.getvalue()
    assert len(stored(project)) == 2
    assert (signal.getitimer(signal.ITIMER_PROF), signal.getsignal(signal.SIGPROF)) == ((0, 0), handler)


@pytest.mark.usefixtures("little_time")
def test_rest_of_archive_is_not_read_after_a_file_that_spins(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "outline", Spinning(importer.outline))
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        for name in ("a", "spin", "z"):
            archive.writestr(f"{name}.json", json.dumps(talk(name)))
    first, second = import_paths(primary, [tmp_path / "runs.zip"], project.pk)
    assert (first.path, first.stored) == (f"{tmp_path}/runs.zip/a.json", {"created": 2})
    assert (second.path, second.status, second.reason) == (
        f"{tmp_path}/runs.zip/spin.json",
        "failed",
        "took more than 1 s of CPU time; the rest of the archive was not read",
    )
    assert len(stored(project)) == 1


@pytest.mark.usefixtures("little_time")
def test_archive_that_spins_while_unpacked_fails(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "is_packed", Spinning(archives.is_packed))
    with tarfile.open(tmp_path / "runs.tar", "w") as archive:
        for name in ("a", "spin"):
            archive.add(write(tmp_path / f"{name}.json", talk(name)), f"{name}.json")
    first, second = import_paths(primary, [tmp_path / "runs.tar"], project.pk)
    assert (first.status, first.stored) == ("read", {"created": 2})
    assert (second.path, second.status, second.reason) == (
        f"{tmp_path}/runs.tar",
        "failed",
        "took more than 1 s of CPU time",
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("little_time")
def test_file_that_spins_while_stored_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project.objects.create(slug="imports")
    path = write(tmp_path / "talk.json", {"id": "t", "messages": talk("a")})
    imported(path, project)
    before = stored(project)
    # Within the transaction, after all rows are written.
    monkeypatch.setattr("traces_app.ingest.store.log_changes", lambda *_, **__: Spinning(str)("spin"))
    write(path, {"id": "t", "messages": [*talk("a"), *talk("spin")]})
    report = import_file(path, project.pk)
    assert (report.status, report.reason) == ("failed", "took more than 1 s of CPU time")
    monkeypatch.undo()
    assert stored(project) == before
    assert imported(path, project).stored == {"created": 2, "unchanged": 2}


# --- The command --------------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    out = StringIO()
    call_command("import_transcripts", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_command_prints_each_file_and_totals(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", [*TALK, {"role": "critic", "content": "Bad."}])
    (tmp_path / "notes.md").write_text("notes")
    assert run(tmp_path, "--project", "imports") == (
        f"{tmp_path}/notes.md: skipped: neither JSON nor an archive\n"
        f"{path}: openai_chat, 1 session; messages: 2 assistant, 1 system, 2 user; 2 tool calls, 2 results, 1 failed, "
        "1 call with invalid JSON arguments\n"
        "  messages: 5 created\n"
        f"  page: /admin/messages_app/session/{Session.objects.get().pk}/change/\n"
        "  left out: [8]: unknown role 'critic'; a role is one of system, developer, user, assistant, tool, function\n"
        "\n"
        "Files: 1 read, 1 skipped, 0 failed\n"
        "Messages: 5 created\n"
        "Total: 1 session; messages: 2 assistant, 1 system, 2 user; 2 tool calls, 2 results, 1 failed, "
        "1 call with invalid JSON arguments\n"
        "  get_weather: 2 calls, 1 failed\n"
        "  invalid_arguments: 1 message\n"
    )


def test_command_lists_some_skipped_files_and_counts_the_others(project: Project, tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"notes-{number:02}.md").write_text("notes")
    write(tmp_path / "talk.json", TALK)
    said = run(tmp_path, "--project", "imports").splitlines()
    assert [line.split(":")[0] for line in said[:20]] == [f"{tmp_path}/notes-{number:02}.md" for number in range(20)]
    assert said[23:26] == ["5 more files skipped; use -v 2 to list them.", "", "Files: 1 read, 25 skipped, 0 failed"]
    assert sum("notes-" in line for line in run(tmp_path, "--project", "imports", "-v", "2").splitlines()) == 25


def test_dry_run_counts_and_stores_nothing(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", TALK)
    assert run(path, "--project", "imports", "--dry-run").endswith("Dry run: nothing was stored.\n")
    assert not Session.objects.exists()


def test_command_prints_the_report_as_json(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", TALK)
    counted = {
        "sessions": 1,
        "messages": {"system": 1, "user": 2, "assistant": 2},
        "steps": 1,
        "tool_calls": {"get_weather": 2},
        "tool_results": 2,
        "errors": {"get_weather": 1},
        "calls_without_result": 0,
        "orphan_results": 0,
        "broken_arguments": 1,
        "health": {"invalid_arguments": 1},
    }
    said = json.loads(run(path, "--project", "imports", "--json"))
    session = Session.objects.get().pk
    assert said == {
        "project": "imports",
        "dry_run": False,
        "files": [
            {
                "path": str(path),
                "status": "read",
                "reason": "",
                "format": "openai_chat",
                "counts": counted,
                "left_out": [],
                "left_out_count": 0,
                "renamed": [],
                "stored": {"created": 5},
                "sessions": [{"id": str(session), "page": f"/admin/messages_app/session/{session}/change/"}],
            }
        ],
        "totals": counted,
    }


def test_command_fails_for_a_failed_file_and_imports_others(project: Project, tmp_path: Path) -> None:
    write(tmp_path / "a.json", "nothing of ours")
    (tmp_path / "b.json").write_text("{")
    write(tmp_path / "c.json", TALK)
    with pytest.raises(CommandError, match=r"^1 of 3 files failed\.$"):
        run(tmp_path, "--project", "imports")
    assert Session.objects.filter(project=project).count() == 1


@pytest.mark.parametrize("name", ["session_deleted", "session_purged", "message_deleted", "message_purged"])
def test_command_names_why_messages_are_refused(name: str, project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", TALK)
    run(path, "--project", "imports")
    rows, _, what = name.partition("_")
    model: type[Session | Message] = Session if rows == "session" else Message
    count = Message.objects.count()
    model.objects.update(deleted_at=timezone.now())
    if what == "purged":
        call_command("purge", deleted_longer_than="0", yes=True, stdout=StringIO())
    out = StringIO()

    with pytest.raises(CommandError, match=f"^{count} messages were refused.$") as refused:
        call_command("import_transcripts", str(path), project="imports", stdout=out)

    reasons = {
        "session_deleted": "their session is in the trash; restore it and import again",
        "session_purged": "their session was purged",
        "message_deleted": "they are in the trash; restore them and import again",
        "message_purged": "they were purged",
    }
    assert f"  messages: {count} refused: {reasons[name]}\n" in out.getvalue()
    assert f"\nMessages: {count} refused: {reasons[name]}\n" in out.getvalue()
    assert refused.value.returncode == 1


def test_every_refusal_has_a_reason_in_the_command() -> None:
    assert set(import_transcripts._WHY_REFUSED) == set(get_args(Refusal))


def test_command_fails_where_no_transcript_is(project: Project, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=f"^No transcripts found in {tmp_path}.$"):
        run(tmp_path, "--project", "imports")
    (tmp_path / "notes.md").write_text("notes")
    with pytest.raises(CommandError, match=f"^No transcripts found in {tmp_path}.$"):
        run(tmp_path, "--project", "imports")


def test_command_with_unknown_project_fails(db: None, tmp_path: Path) -> None:
    with pytest.raises(
        CommandError, match="There is no project 'nowhere'. Create it with: manage.py create_project nowhere"
    ) as error:
        run(tmp_path, "--project", "nowhere")
    assert error.value.returncode == 2


def test_unprintable_characters_in_names_are_escaped(project: Project, tmp_path: Path) -> None:
    for name in (b"a\xff.json", b"b\x1b[2J\n.json"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text(json.dumps(TALK))
    out = StringIO()
    call_command("import_transcripts", str(tmp_path), project="imports", stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.partition(": ")[0].rpartition("/")[2] for line in lines if "openai_chat" in line] == [
        "a\\udcff.json",
        "b\\x1b[2J\\n.json",
    ]
    out = StringIO()
    call_command("import_transcripts", str(tmp_path), project="imports", json=True, stdout=out)
    paths = [report["path"] for report in json.loads(out.getvalue())["files"]]
    assert [path.rpartition("/")[2] for path in paths] == ["a\\udcff.json", "b\x1b[2J\n.json"]


def test_hidden_files_of_an_archive_are_skipped(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (".claude/talk.json", "__MACOSX/.claude/._talk.json", "._other.json", "a/.hidden.json"):
            archive.writestr(name, b"\0\5\x16\7" if "._" in name else json.dumps(TALK))
    found = [
        (report.path.removeprefix(f"{path}/"), report.status) for report in import_paths(primary, [path], project.pk)
    ]
    assert found == [
        (".claude/talk.json", "read"),
        ("__MACOSX/.claude/._talk.json", "skipped"),
        ("._other.json", "skipped"),
        ("a/.hidden.json", "skipped"),
    ]


def test_counts_of_one_are_printed_in_the_singular(project: Project, tmp_path: Path) -> None:
    call = {"id": "c1", "function": {"name": "a", "arguments": "{}"}}
    document = [TALK[1], {"role": "assistant", "tool_calls": [call]}]
    document += [{"role": "tool", "tool_call_id": id_, "content": "one"} for id_ in ("c1", "c9")]
    said = run(write(tmp_path / "talk.json", document), "--project", "imports", "--dry-run")
    assert "1 session; messages: 1 assistant, 1 user; 1 tool call, 1 result, 1 result without call\n" in said
    assert "  a: 1 call\n" in said


# --- Archives, standard input and the terminal ----------------------------------------------------------------------


def zipped(path: Path, **files: object) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, document in files.items():
            archive.writestr(name, document if isinstance(document, bytes) else json.dumps(document))
    return path


def test_files_of_an_archive_are_reported_individually(project: Project, tmp_path: Path) -> None:
    files = {
        "a.json": TALK,
        "b.json": b"{",
        "notes.txt": b"notes",
        "c.gz": gzip.compress(json.dumps(TALK[:2]).encode()),
    }
    path = zipped(tmp_path / "all.zip", **files)
    found = [
        (report.path.removeprefix(f"{path}/"), report.status, report.reason.partition(":")[0])
        for report in import_paths(primary, [path], project.pk)
    ]
    assert found == [
        ("a.json", "read", ""),
        ("b.json", "failed", "not JSON"),
        ("notes.txt", "skipped", "not JSON"),
        ("c.gz", "read", ""),
    ]
    assert Session.objects.filter(project=project).count() == 1


def test_named_compressed_file_without_transcript_has_failed(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    path.write_bytes(gzip.compress(json.dumps(TALK).encode()))
    assert imported(path, project).stored == {"created": 5}
    path.write_bytes(gzip.compress(b"notes"))
    assert import_file(path, project.pk).status == "failed"
    path.write_bytes(gzip.compress(json.dumps(TALK).encode())[:-9])
    report = import_file(path, project.pk)
    assert (report.path, report.status, report.reason) == (str(path), "failed", "the data is truncated")
    zipped(path)
    assert import_file(path, project.pk).status == "failed"


def test_archive_that_is_one_transcript_is_read_as_one(project: Project, tmp_path: Path) -> None:
    header = {"version": 2, "status": "success", "eval": {"task": "t", "run_id": "r", "model": "m"}}
    sample = {"id": 1, "epoch": 1, "messages": [{"id": "a", "role": "user", "content": "Hi"}]}
    path = zipped(tmp_path / "log", **{"header.json": header, "samples/1_epoch_1.json": sample})
    report = imported(path, project)
    assert (report.path, report.format, report.counts.sessions) == (str(path), "inspect_ai", 1)


def test_standard_input_and_pipes_are_read(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"\n".join(json.dumps(message).encode() for message in TALK)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(lines)))
    (report,) = import_paths(primary, [Path("-")], project.pk)
    assert (report.path, report.status, report.stored) == ("standard input", "read", {"created": 5})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[lines])
    writer.start()
    assert imported(pipe, project).stored == {"unchanged": 5}
    writer.join()


def test_files_of_a_folder_are_read_if_they_look_like_json(project: Project, tmp_path: Path) -> None:
    write(tmp_path / "talk", TALK)
    (tmp_path / "module.py").write_text("[print(1)]")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    found = [
        (Path(r.path).name, r.status, r.reason.partition(":")[0]) for r in import_paths(primary, [tmp_path], project.pk)
    ]
    assert found == [
        ("image.png", "skipped", "neither JSON nor an archive"),
        ("module.py", "skipped", "not JSON"),
        ("talk", "read", ""),
    ]


def test_import_with_a_given_format_uses_only_it(project: Project, tmp_path: Path) -> None:
    path = write(tmp_path / "talk.json", TALK)
    assert "openai_chat, 1 session" in run(path, "--project", "imports", "--format", "openai_chat", "--dry-run")
    with pytest.raises(CommandError, match=r"^1 of 1 file failed\.$"):
        run(path, "--project", "imports", "--format", "pi")
    with pytest.raises(CommandError, match="invalid choice: 'word'"):
        run(path, "--project", "imports", "--format", "word")


def test_progress_bar_is_shown_only_on_a_terminal(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = zipped(tmp_path / "all.zip", **{"a.json": TALK})
    run(path, "--project", "imports")
    assert capsys.readouterr().err.count("all.zip") == 0
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run(path, "--project", "imports")
    assert "all.zip" in capsys.readouterr().err


def test_session_with_parts_in_several_files_counts_once(project: Project, tmp_path: Path) -> None:
    line = {"type": "user", "sessionId": "s-1", "uuid": "u", "timestamp": "2026-03-01T12:00:00Z", "version": "2.0.0"}
    main = line | {"message": {"role": "user", "content": "Go"}}
    agent = line | {"uuid": "v", "isSidechain": True, "agentId": "a1", "message": {"role": "user", "content": "Look"}}
    reply = agent | {
        "type": "assistant",
        "uuid": "w",
        "message": {"id": "msg_1", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Seen."}]},
    }
    for name, lines in (("main", [main]), ("agent-a1", [agent, reply]), ("other", [main | {"sessionId": "s-2"}])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    totals = Counts()
    reports = list(import_paths(primary, [tmp_path], project.pk))
    for report in reports:
        totals.include(report.counts)
    assert [report.counts.sessions for report in reports] == [1, 1, 1]
    assert totals.sessions == Session.objects.filter(project=project).count() == 2


# --- Texts ----------------------------------------------------------------------------------------------------------


def test_texts_are_found_by_their_beginning_also_hidden_ones(project: Project, tmp_path: Path) -> None:
    chat = b"# A\xff\n_Exported on 5/15/2025 from Cursor (0.50.4)_\r\n\r\n---\r\n\r\n**User**\r\n\r\nHi you\r\n"
    story = b"<!-- Generated by SpecStory -->\n\n_**User**_\n\nHi\n\n_**Agent**_\n\nHello\n"
    history = b"\n# aider chat started at 2026-03-01 12:00:00\n\n> Aider v1  \n\n#### Hi aider  \n"
    files = {
        ".aider.chat.history.md": history,
        ".story.md": story,
        ".other.md": b"# A readme",
        "chat": chat,
        "readme.md": b"# A readme\n",
    }
    (tmp_path / "folder").mkdir()
    for name, data in files.items():
        (tmp_path / "folder" / name).write_bytes(data)
    found = [
        (Path(report.path).name, report.status, report.format or report.reason.partition(":")[0])
        for report in import_paths(primary, [tmp_path / "folder", zipped(tmp_path / "all.zip", **files)], project.pk)
    ]
    assert found == [
        (".aider.chat.history.md", "read", "aider"),
        (".other.md", "skipped", "a hidden file"),
        (".story.md", "read", "specstory"),
        ("chat", "read", "cursor"),
        ("readme.md", "skipped", "neither JSON nor an archive"),
        (".aider.chat.history.md", "read", "aider"),
        (".story.md", "read", "specstory"),
        (".other.md", "skipped", "a hidden file"),
        ("chat", "read", "cursor"),
        ("readme.md", "skipped", "not JSON"),
    ]
    assert sorted(Message.objects.filter(project=project).values_list("content", flat=True)) == [
        "Hello",
        "Hi",
        "Hi aider",
        "Hi you",
    ]
    report = imported(tmp_path / "folder" / "chat", project)
    assert report.stored == {"unchanged": 1}
    assert report.left_out == [("(all)", "invalid UTF-8 was replaced by \ufffd")]
