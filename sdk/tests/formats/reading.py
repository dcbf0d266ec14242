"""Shared parts of the tests of formats: reading documents, counting real files, growth, and mangled documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from sdk.tests.growing import merged
from sdk.tests.growth import grows_linearly
from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats.registry import Format, format_of
from tracesite_sdk.normalize.pricing import tokens_of
from tracesite_sdk.normalize.tool_results import normalize_result
from tracesite_sdk.records.health_flags import ORPHAN_RESULT
from tracesite_sdk.transcripts.documents import Line, Lines, Text
from tracesite_sdk.transcripts.outline import digests_of, session_of
from tracesite_sdk.transcripts.times import with_times


def read(format_: Format, document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    """Return the sessions and the omissions of a document. Raise msgspec.ValidationError if a value has not the type of its field."""
    left_out: list[tuple[str, str]] = []
    sessions = [
        session_of(transcript, format_.NAME)
        for transcript in format_.transcripts(document, lambda where, why: left_out.append((where, why)))
    ]
    for session in sessions:
        msgspec.convert(msgspec.to_builtins(session), records.Session)
    return sessions, left_out


def only(format_: Format, document: object) -> records.Session:
    """Return the only session of a document that is recognised and read without omissions."""
    assert format_of(document) is format_
    (session,), left_out = read(format_, document)
    assert left_out == []
    assert_counts_tokens(session.messages or [])
    return session


def messages_of(format_: Format, document: object) -> list[records.Message]:
    """Return the messages of the only session of a document that is read without omissions."""
    (session,), left_out = read(format_, document)
    assert left_out == []
    assert_counts_tokens(session.messages or [])
    return session.messages or []


def assert_counts_tokens(messages: list[records.Message]) -> None:
    """Assert that each usage has tokens under names that are counted."""
    usages = [usage for message in messages for usage in (message.usage, *(step.usage for step in steps(message)))]
    unknown = [usage for usage in usages if usage and tokens_of(usage) is None]
    assert unknown == [], "Rename these tokens: docs/cost.md has the names that are counted."


def lines(values: list[Any]) -> Lines:
    def numbered() -> Iterator[Line]:
        return (Line(number, value) for number, value in enumerate(values, start=1))

    return Lines(numbered)


def load(path: Path) -> Any:
    text = path.read_text()
    return lines([json.loads(line) for line in text.splitlines()]) if path.suffix == ".jsonl" else json.loads(text)


def steps(message: records.Message) -> list[records.AgentStep]:
    return message.agent_steps or []


def calls(session: records.Session) -> list[records.ToolCall]:
    return [call for message in session.messages or () for step in steps(message) for call in step.tool_calls or ()]


def results(session: records.Session) -> list[Any]:
    return [call.result for call in calls(session)]


# --- Figures ----------------------------------------------------------------------------------------------------------


def figures(sessions: list[records.Session]) -> dict[str, Any]:
    """Count sessions in the terms of EXPECTED_COUNTS.json."""
    requested: list[records.ToolCall] = []
    orphans: list[records.ToolCall] = []
    for call in (call for session in sessions for call in calls(session)):
        (orphans if (call.metadata or {}).get(ORPHAN_RESULT) else requested).append(call)
    return {
        "sessions": len(sessions),
        "user": sum(message.role == "user" for session in sessions for message in session.messages or ()),
        "tool_calls_by_name": dict(Counter(call.name for call in requested)),
        "tool_results": sum(call.result is not None for call in [*requested, *orphans]),
        "errors_by_tool": dict(Counter(call.name for call in [*requested, *orphans] if call.status == "error")),
        "calls_without_result": sum(call.result is None for call in requested),
        "results_without_call": len(orphans),
    }


def has_failed(call: records.ToolCall) -> bool:
    """Return whether a call failed by the flag of its format, else by its result."""
    result = normalize_result(call.result, call.status)
    return (result.status if result is not None else call.status) == "error"


def counted(name: str) -> dict[str, Any]:
    """Return the independent counts of a real file; skip the test if the file is absent."""
    if not (SHARED / name).exists():
        pytest.skip("the shared data are not on this machine")
    counts = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[name]
    same = (
        "sessions",
        "tool_calls_by_name",
        "tool_results",
        "errors_by_tool",
        "calls_without_result",
        "results_without_call",
    )
    return {"user": counts["messages_by_role"].get("user", 0), **{key: counts[key] for key in same}}


def other_files(*folders: str) -> list[Path]:
    """Return the real JSON files outside of these folders and suffixes; skip the test if there are none."""
    if not SHARED.exists():
        pytest.skip("the shared data are not on this machine")
    files = [
        path
        for path in sorted(SHARED.rglob("*"))
        if path.suffix in (".json", ".jsonl", ".traj")
        and path.relative_to(SHARED).parts[0] not in (*folders, "otlp")
        and path.suffix not in folders
        and path.name != "EXPECTED_COUNTS.json"
    ]
    assert len(files) > 30
    return files


def assert_takes_no_other(format_: Format, *folders: str) -> None:
    """Assert that the format recognises only the real files of its folders."""
    mine = []
    for path in other_files(*folders):
        try:
            document = load(path)
        except ValueError:
            continue  # Several values on one line: no format tested here has them.
        if format_.recognises(document):
            mine.append(path.name)
    assert mine == []


# --- Growth -----------------------------------------------------------------------------------------------------------

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def assert_grows(format_: Format, start: object, whole: object) -> None:
    """Assert that storing an earlier state of a document and then the whole equals storing the whole."""
    later = {session.external_id: session for session in read(format_, whole)[0]}
    for session in read(format_, start)[0]:
        assert session.external_id in later
        grown = later[session.external_id]
        before, now = digests_of(session.metadata), digests_of(grown.metadata)
        assert before == now[: len(before)]
        known = with_times(session, NOON)
        messages = with_times(grown, known.created_at or NOON).messages or []
        assert len(known.messages or ()) <= len(messages)
        for old, new in zip(known.messages or (), messages, strict=False):
            assert (old.external_id, old.created_at) == (new.external_id, new.created_at)
            grown_to, at_once = merged(_without_pending(old), _without_pending(new)), _without_pending(new)
            differing = [name for name in new.__struct_fields__ if getattr(grown_to, name) != getattr(at_once, name)]
            each = [(name, getattr(grown_to, name), getattr(at_once, name)) for name in differing]
            assert each == [], f"message {new.external_id} grows to another one than is read at once"


def _without_pending(message: records.Message) -> records.Message:
    """Drop the status of calls, which follows from the presence and the status of the result."""
    if message.agent_steps is None:
        return message
    without_status = [
        replace(step, tool_calls=[replace(call, status=None) for call in step.tool_calls or ()])
        for step in message.agent_steps
    ]
    return replace(message, agent_steps=without_status)


# --- Broken documents -------------------------------------------------------------------------------------------------

_JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.sampled_from(["user", "assistant", "tool", "system", "agent", "message", "2025-01-01T00:00:00", "error"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "type", "id", "content", "text", "error", "kind"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)


@dataclass(frozen=True)
class _Spot:
    """The path of a value in a document."""

    keys: tuple[Any, ...]


def _spots(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[_Spot]:
    if keys:
        yield _Spot(keys)
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _spots(item, (*keys, key))


_OF_EACH_TYPE = (None, True, 1e300, "x", ["x"])


def assert_takes_any_type(format_: Format, document: Any) -> None:
    """Assert that a document, of lines if it is a list, is read with a value of each type in each place."""
    for spot in list(_spots(document)):
        for value in _OF_EACH_TYPE:
            broken = json.loads(json.dumps(document))
            *path, last = spot.keys
            holder = broken
            for key in path:
                holder = holder[key]
            holder[last] = value
            shown = lines(broken) if isinstance(broken, list) else broken
            if format_.recognises(shown):
                read(format_, shown)


@st.composite
def mangled(draw: st.DrawFn, document: Any) -> Any:
    """Replace, remove or double some values of a document."""
    broken = json.loads(json.dumps(document))
    for _time in range(draw(st.integers(1, 4))):
        spots = list(_spots(broken))
        if not spots:
            break
        *path, last = draw(st.sampled_from(spots)).keys
        holder = broken
        for key in path:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "remove", "double"]))
        if how == "replace":
            holder[last] = draw(_JUNK)
        elif how == "remove":
            del holder[last]
        elif isinstance(holder, list):
            holder.insert(last, json.loads(json.dumps(holder[last])))
    return broken


# --- Texts ------------------------------------------------------------------------------------------------------------


@st.composite
def mangled_texts(draw: st.DrawFn, text: str) -> Text:
    """Remove, double and swap some lines of a text, and cut it."""
    broken = text.split("\n")
    for _time in range(draw(st.integers(1, 4))):
        at, other = (draw(st.integers(0, len(broken) - 1)) for _ in "ab")
        how = draw(st.sampled_from(["remove", "double", "swap"]))
        if how == "remove" and len(broken) > 1:
            del broken[at]
        elif how == "double":
            broken.insert(other, broken[at])
        else:
            broken[at], broken[other] = broken[other], broken[at]
    joined = "\n".join(broken)
    return Text(joined[: draw(st.integers(0, len(joined)))])


def assert_reads_in_linear_time(format_: Format, start: str, repeated: str) -> None:
    """Assert that a text takes linear time that begins as `start` and goes on with a repetition."""

    def work(document: Text) -> None:
        assert format_.recognises(document)
        for transcript in format_.transcripts(document, lambda _where, _why: None):
            assert not isinstance(transcript, records.Session)
            for _entry in transcript.entries():
                pass

    assert grows_linearly(work, lambda size: Text(start + repeated * (size // len(repeated))), 400_000, spare=0.05)
