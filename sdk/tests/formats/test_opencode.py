"""Exports of OpenCode: steps, calls in every state, inserted text, errors, and growth."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import opencode
from tracesite_sdk.formats.registry import FORMATS, format_of
from tracesite_sdk.transcripts import databases
from tracesite_sdk.transcripts.documents import Files, Unreadable

from .reading import assert_grows, assert_takes_no_other, calls, has_failed, lines, mangled, only, read, steps

START = 1772359200000
"""2026-03-01T10:00:00Z in milliseconds."""
INFO = {"id": "ses_1", "slug": "calm", "projectID": "p", "directory": "/srv/shop", "title": "Look around", "version": "1.2.3", "time": {"created": START, "updated": START + 9000}}  # fmt: skip
TOKENS = {"input": 100, "output": 10, "reasoning": 4, "cache": {"read": 50, "write": 0}}


def part(own: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"prt_{own}", "sessionID": "ses_1", "messageID": "msg", "type": kind, **fields}


def message(own: str, role: str, second: int, *parts: Any, **fields: Any) -> dict[str, Any]:
    info = {"id": own, "sessionID": "ses_1", "role": role, "time": {"created": START + second * 1000}, **fields}
    return {"info": info, "parts": list(parts)}


def tool(own: str, name: str, status: str, second: int = 2, **state: Any) -> dict[str, Any]:
    ended = {"end": START + second * 1000 + 500} if status in ("completed", "error") else {}
    time = {"time": {"start": START + second * 1000, **ended}} if status != "pending" else {}
    return part(own, "tool", callID=f"call_{own}", tool=name, state={"status": status, "input": {"a": own}, **time, **state})  # fmt: skip


USER = message(
    "msg_1",
    "user",
    0,
    part("1", "text", text="Look at @a.py"),
    part("2", "text", text="Called the Read tool", synthetic=True),
    part("3", "file", mime="text/plain", filename="a.py", url="file:///a.py"),
    agent="build",
    model={"providerID": "anthropic", "modelID": "claude"},
    summary={"title": "Look", "diffs": [{"file": "a.py", "before": "x", "after": "y", "additions": 1, "deletions": 1}]},
)
REPLY = message(
    "msg_2",
    "assistant",
    1,
    part("4", "step-start", snapshot="abc"),
    part("5", "reasoning", text="Hm.", time={"start": START + 1000}),
    part("6", "text", text="I look."),
    tool("7", "bash", "completed", output="a.py", title="ls", metadata={"exit": 0}),
    tool("8", "bash", "completed", output="boom", title="make", metadata={"exit": 2}),
    tool("9", "edit", "error", error="no such file"),
    part("10", "step-finish", reason="tool-calls", cost=0.01, tokens=TOKENS),
    part("11", "patch", hash="def", files=["a.py"]),
    part("12", "step-start"),
    tool("13", "task", "running", second=5, title="sub", metadata={"sessionId": "ses_2"}),
    part("14", "step-finish", reason="stop", cost=0.02, tokens={**TOKENS, "input": 7}),
    parentID="msg_1",
    modelID="claude-sonnet",
    providerID="anthropic",
    mode="build",
    agent="build",
    path={"cwd": "/srv/shop", "root": "/srv"},
    cost=0.03,
    tokens=TOKENS,
)
DONE = message("msg_3", "assistant", 6, part("15", "text", text="Done."), modelID="claude-sonnet", tokens=TOKENS, cost=0.5)  # fmt: skip
COMPACTION = message("msg_4", "user", 7, part("16", "compaction", auto=True))
SUMMARY = message("msg_5", "assistant", 8, part("17", "text", text="So far."), modelID="claude-sonnet", summary=True, agent="compaction")  # fmt: skip
ABORTED = message("msg_6", "assistant", 9, error={"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}, modelID="claude-sonnet")  # fmt: skip
WHOLE = [USER, REPLY, DONE, COMPACTION, SUMMARY]


def export(messages: list[Any], **beside: Any) -> dict[str, Any]:
    return {"info": INFO, "messages": messages, **beside}


def test_full_session_gives_expected_records() -> None:
    session = only(opencode, export(WHOLE, todos=[{"content": "x"}]))
    assert (session.external_id, session.title, session.status) == ("ses_1", "Look around", None)
    assert session.created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
    metadata = session.metadata or {}
    assert (metadata["directory"], metadata["version"], metadata["todos"]) == ("/srv/shop", "1.2.3", [{"content": "x"}])
    question, added, answer, compaction = session.messages or []
    assert question.content == [
        {"type": "text", "text": "Look at @a.py"},
        {"type": "file", "mime": "text/plain", "filename": "a.py", "url": "file:///a.py"},
    ]
    assert (question.metadata or {})["summary"] == {
        "title": "Look",
        "diffs": [{"file": "a.py", "additions": 1, "deletions": 1}],
    }
    assert (added.role, added.content, added.external_id) == ("system", "Called the Read tool", "msg_1#added")
    assert (compaction.role, compaction.content) == ("system", "[compaction]")
    assert (answer.content, answer.external_id, answer.created_at) == ("Done.", "msg_2", datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC))  # fmt: skip
    first, second, last, summary = steps(answer)
    assert (first.id, second.id, last.id, summary.thought) == ("msg_2", "msg_2.1", "msg_3", "So far.")
    assert (first.thought, first.reasoning_content, first.model) == ("I look.", "Hm.", "claude-sonnet")
    assert first.usage == {"input_tokens": 100, "output_tokens": 10, "reasoning": 4, "cache": {"read": 50, "write": 0}, "cost": 0.01}  # fmt: skip
    assert (last.thought, last.model) == (None, "claude-sonnet")
    assert [step.usage and step.usage["cost"] for step in steps(answer)] == [0.01, 0.02, 0.5, None]
    assert (first.metadata or {})["patches"] == [{"hash": "def", "files": ["a.py"]}]
    assert (first.metadata or {})["path"] == {"cwd": "/srv/shop", "root": "/srv"}
    assert [(call.id, call.name, call.args, call.status) for call in calls(session)] == [
        ("call_7", "bash", {"a": "7"}, "success"),
        ("call_8", "bash", {"a": "8"}, "error"),
        ("call_9", "edit", {"a": "9"}, "error"),
        ("call_13", "task", {"a": "13"}, "pending"),
    ]
    bash, make, edit, _task = calls(session)
    assert (bash.duration, bash.started_at) == (500.0, datetime(2026, 3, 1, 10, 0, 2, tzinfo=UTC))
    assert isinstance(make.result, records.ToolResult) and isinstance(edit.result, records.ToolResult)
    assert (make.result.output, make.result.data, edit.result.output) == ("boom", {"exit": 2}, "no such file")
    assert (bash.metadata or {}) == {"title": "ls"}


@pytest.mark.parametrize(("stated", "expected"), [(0.03, {"cost": 0.02}), (0.01, None), (None, None), ("0.03", None)])
def test_unfinished_last_step_has_rest_of_the_cost(stated: Any, expected: Any) -> None:
    reply = {"info": {**REPLY["info"], "cost": stated}, "parts": REPLY["parts"][:-1]}
    ((session,), _left_out) = read(opencode, export([USER, reply]))
    first, last = steps((session.messages or [])[-1])
    assert ((first.usage or {})["cost"], last.usage) == (0.01, expected)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [({}, {"cost": 0.04}), ({"tokens": TOKENS}, {"input_tokens": 100, "cost": 0.04}), ({"cost": 0.5}, {"cost": 0.04})],
)
def test_step_with_cost_and_no_tokens_keeps_the_cost(stated: Any, expected: Any) -> None:
    parts = part("1", "text", text="Hi."), part("2", "step-finish", cost=0.04)
    reply = message("msg_2", "assistant", 1, *parts, **stated)
    ((session,), _left_out) = read(opencode, export([USER, reply]))
    (step,) = steps((session.messages or [])[-1])
    assert {name: (step.usage or {}).get(name) for name in expected} == expected
    assert ("input_tokens" in (step.usage or {})) == ("tokens" in stated)


def test_last_step_with_tokens_only_has_rest_of_the_cost() -> None:
    first, last = (
        [part("1", "step-start"), part("2", "text", text="Hm."), part("3", "step-finish", cost=0.01)],
        [part("4", "step-start"), part("5", "text", text="Hi."), part("6", "step-finish", tokens=TOKENS)],
    )
    reply = message("msg_2", "assistant", 1, *first, *last, cost=0.03)
    ((session,), _left_out) = read(opencode, export([USER, reply]))
    usages = [step.usage or {} for step in steps((session.messages or [])[-1])]
    assert [(usage.get("input_tokens"), usage["cost"]) for usage in usages] == [(None, 0.01), (100, 0.02)]


def test_aborted_session_has_status_aborted() -> None:
    session = only(opencode, export([USER, ABORTED]))
    assert session.status == "aborted"
    last = (session.messages or [])[-1]
    assert (last.error, last.health) == ("MessageAbortedError: The operation was aborted.", ["stopped"])


def test_provider_error_is_error_of_the_message() -> None:
    failed = message("msg_2", "assistant", 1, error={"name": "APIError", "data": {"message": "529"}})
    session = only(opencode, export([USER, failed]))
    assert ((session.messages or [])[-1].error, session.status) == ("APIError: 529", "error")


def test_generated_title_is_replaced_by_first_prompt() -> None:
    document = {**export([USER]), "info": {**INFO, "title": "New session - 2026-03-01T10:00:00.000Z"}}
    assert only(opencode, document).title == "Look at @a.py"


@pytest.mark.parametrize("form", ["list", "lines"])
def test_messages_listed_by_server_are_read(form: str) -> None:
    other = {"info": {**USER["info"], "id": "msg_9", "sessionID": "ses_9"}, "parts": USER["parts"]}
    messages = [*WHOLE, other]
    document = messages if form == "list" else lines(messages)
    assert format_of(document) is opencode
    sessions, left_out = read(opencode, document)
    assert [session.external_id for session in sessions] == ["ses_1", "ses_9"]
    assert (len(calls(sessions[0])), left_out) == (4, [])


def test_lines_and_lists_of_exports_are_read() -> None:
    second = {**export([USER]), "info": {**INFO, "id": "ses_2", "parentID": "ses_1"}}
    for document in ([export(WHOLE), second, 3], lines([export(WHOLE), second, 3])):
        sessions, left_out = read(opencode, document)
        assert [session.external_id for session in sessions] == ["ses_1", "ses_2"]
        assert (sessions[1].metadata or {})["parentID"] == "ses_1"
        assert [why for _where, why in left_out] == ["neither an OpenCode export nor a message of one"]


def test_invalid_messages_and_parts_are_reported() -> None:
    odd = message("msg_7", "system", 9)
    _, left_out = read(opencode, export([USER, {**DONE, "parts": [3]}, odd, 5]))
    assert left_out == [
        ("messages[1].parts[0]", "not an object"),
        ("messages[2]", "the role is system; a role is one of user, assistant"),
        ("messages[3]", "the role is missing; a role is one of user, assistant"),
    ]


def test_part_of_unknown_type_is_kept() -> None:
    session = only(opencode, export([USER, message("msg_2", "assistant", 1, part("1", "hologram", x=1))]))
    assert (session.messages or [])[-1].content == [{"type": "hologram", "x": 1}]


@pytest.mark.parametrize("count", range(1, len(WHOLE) + 1))
def test_grown_session_keeps_earlier_records(count: int) -> None:
    assert_grows(opencode, export(WHOLE[:count]), export(WHOLE))


def test_open_call_gets_result_in_grown_session() -> None:
    running = {**REPLY, "parts": [*REPLY["parts"][:3], tool("7", "bash", "running")]}
    assert_grows(opencode, export([USER, running]), export(WHOLE))
    assert [has_failed(call) for call in calls(only(opencode, export(WHOLE)))] == [False, True, True, False]


# --- The storage folder -----------------------------------------------------------------------------------------------


def stored(messages: list[Any], root: str = "storage/", info: dict[str, Any] | None = INFO) -> dict[str, Any]:
    """Return the files of a session by their names, in no order."""
    files: dict[str, Any] = {f"{root}project/p.json": {"id": "p", "worktree": "/srv/shop"}}
    for stored_message in messages:
        own = stored_message["info"]["id"]
        for stored_part in stored_message["parts"]:
            # Ids are random within a moment; here their numbers are the order.
            name = f"prt_{int(stored_part['id'].removeprefix('prt_')):04}"
            files[f"{root}part/{own}/{name}.json"] = {**stored_part, "id": name, "messageID": own}
        files[f"{root}message/ses_1/{own}.json"] = stored_message["info"]
    return files | ({f"{root}session/p/ses_1.json": info} if info is not None else {})


def folder(files: dict[str, Any]) -> Files:
    def read_file(name: str) -> Any:
        if isinstance(files[name], Unreadable):
            raise files[name]
        return files[name]

    return Files(tuple(files), read_file)


def sessions_in(files: Files) -> tuple[list[records.Session], list[tuple[str, str]]]:
    assert [format_.NAME for format_ in FORMATS if format_.recognises(files)] == ["opencode"]
    return read(opencode, files)


@pytest.mark.parametrize("root", ["", "storage/", "share/opencode/storage/"])
def test_folder_is_read_as_the_export_of_its_session_is(root: str) -> None:
    files = folder({**stored(WHOLE, root), "another.json": {}})
    (session,), left_out = sessions_in(files)
    (exported,), _left_out = read(opencode, export(WHOLE))
    assert (session.external_id, session.title) == (exported.external_id, exported.title)
    assert [(m.external_id, m.role, m.content) for m in session.messages or ()] == [(m.external_id, m.role, m.content) for m in exported.messages or ()]  # fmt: skip
    assert [(call.id, call.status) for call in calls(session)] == [(call.id, call.status) for call in calls(exported)]
    assert [step.usage for m in session.messages or () for step in steps(m)] == [step.usage for m in exported.messages or () for step in steps(m)]  # fmt: skip
    others = 2 if not root else 1
    assert left_out == [("(all)", f"neither a session, nor a message, nor a part: {others} file{'s' * (others > 1)}")]
    assert ("another.json" in files.taken) == (not root)


def test_folder_of_the_first_versions_is_read() -> None:
    files = {name.replace("message/", "session/message/").replace("part/", "session/part/ses_1/").replace("session/p/", "session/info/"): value for name, value in stored(WHOLE).items()}  # fmt: skip
    (session,), _left_out = sessions_in(folder(files))
    assert (session.title, len(calls(session))) == ("Look around", 4)


def test_session_without_its_file_or_a_part_is_read() -> None:
    files = stored([USER, REPLY], info=None)
    files["storage/part/msg_2/prt_0007.json"] = Unreadable("not JSON")
    files["storage/session/p/ses_2.json"] = {**INFO, "id": "ses_2"}
    (first, second), left_out = sessions_in(folder(files))
    assert (first.external_id, len(calls(first)), second.external_id, second.messages) == ("ses_1", 3, "ses_2", [])
    assert left_out[0] == ("storage/part/msg_2/prt_0007.json", "not JSON")


# --- The database -----------------------------------------------------------------------------------------------------

TABLES = """
    CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text, directory text, title text,
        version text, time_created integer, time_updated integer, cost real, tokens_input integer);
    CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer, data text NOT NULL);
    CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer, data text);
    CREATE VIEW trap AS SELECT * FROM session;
"""


def database(path: Path, messages: list[Any]) -> Path:
    """Write a database with the session of `export`; its messages and parts are in the order of their ids alone."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES)
        created, updated = INFO["time"]["created"], INFO["time"]["updated"]
        about = [INFO[name] for name in ("id", "projectID", "slug", "directory", "title", "version")]
        connection.execute("INSERT INTO session VALUES (?, ?, NULL, ?, ?, ?, ?, ?, ?, 9.5, 900)", [*about, created, updated])  # fmt: skip
        for stored_message in reversed(messages):
            own, info = stored_message["info"]["id"], stored_message["info"]
            data = {name: value for name, value in info.items() if name not in ("id", "sessionID")}
            connection.execute("INSERT INTO message VALUES (?, 'ses_1', 0, ?)", [own, json.dumps(data)])
            for stored_part in reversed(stored_message["parts"]):
                number = int(stored_part["id"].removeprefix("prt_"))
                data = {name: value for name, value in stored_part.items() if name not in ("id", "sessionID", "messageID")}  # fmt: skip
                connection.execute("INSERT INTO part VALUES (?, ?, 'ses_1', 0, ?)", [f"prt_{number:04}", own, json.dumps(data)])  # fmt: skip
        connection.commit()
    return path


def test_database_is_read_as_the_export_of_its_session_is(tmp_path: Path) -> None:
    with databases.opened(database(tmp_path / "opencode.db", WHOLE)) as tables:
        assert [format_.NAME for format_ in FORMATS if format_.recognises(tables)] == ["opencode"]
        (session,), left_out = read(opencode, tables)
    (exported,), _left_out = read(opencode, export(WHOLE))
    assert ((session.external_id, session.title, session.created_at), left_out) == ((exported.external_id, exported.title, exported.created_at), [])  # fmt: skip
    assert session.metadata == exported.metadata
    assert [(m.external_id, m.role, m.content, m.metadata) for m in session.messages or ()] == [(m.external_id, m.role, m.content, m.metadata) for m in exported.messages or ()]  # fmt: skip
    assert [(call.id, call.status) for call in calls(session)] == [(call.id, call.status) for call in calls(exported)]
    assert [step.usage for m in session.messages or () for step in steps(m)] == [step.usage for m in exported.messages or () for step in steps(m)]  # fmt: skip


def test_row_without_json_is_reported(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", WHOLE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE part SET data = '{' WHERE id = 'prt_0007'")
        connection.execute("UPDATE message SET data = x'00' WHERE id = 'msg_3'")
        connection.commit()
    with databases.opened(path) as tables:
        (session,), left_out = read(opencode, tables)
    assert len(calls(session)) == 3
    assert [where for where, _why in left_out] == ["part prt_0007", "message msg_3", "message msg_3"]


def test_other_databases_are_not_recognised(tmp_path: Path) -> None:
    path = tmp_path / "goose.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE sessions (id text); CREATE TABLE messages (id text, session_id text, data text)")  # fmt: skip
    with databases.opened(path) as tables:
        assert [format_.NAME for format_ in FORMATS if format_.recognises(tables)] == []


@given(mangled(stored(WHOLE)))
def test_read_mangled_folder_never_raises(files: dict[str, Any]) -> None:
    if opencode.recognises(folder(files)):
        read(opencode, folder(files))


@given(mangled(export([*WHOLE, ABORTED])))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, [document], lines([document])):
        if opencode.recognises(form):
            read(opencode, form)


@pytest.mark.parametrize(
    "document",
    [None, [], {}, [3], {"info": {"id": "x"}, "messages": []}, {"info": {"id": "x"}, "messages": [{"role": "user", "content": "x"}]}, lines([])],
)  # fmt: skip
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not opencode.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(opencode)
