"""Read sessions and evaluation sets of Google's Agent Development Kit (ADK), in snake case or camel case.

* A session is `{"id", "app_name", "user_id", "events": [...]}`, as the server returns it and `adk run --save_session` writes it;
  a list or lines of them; or events alone. An event has an `author`, the user or an agent, and a `content` of the Gemini API (see
  gemini_parts.py) with results under the role `user`. Events with `partial` are pieces of the next ones and are left out. A second
  result of one call, as of a tool that runs for long, replaces the first.
* The tables of `DatabaseSessionService` are the same: events as JSON (`event_data`) since version 1.22, in columns before; what is
  pickled there is not read.
* An evaluation set is `{"eval_set_id", "eval_cases": [{"eval_id", "conversation": [...]}]}`. It states what is expected and was not
  run, which the tag `expected` says. A turn has `user_content`, `intermediate_data` (calls, their results, and what agents said
  in between; or events) and `final_response`. Of the first form of all, a list of `query`, `expected_tool_use` and `reference`, the
  calls have no results.

The summary of a compaction is a system message. State, artifacts and other actions of an event are metadata; events without
content have nothing else. The id of a session is the developer's, the id of a message that of its first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import as_json, content, fields, instant, items, rest, snake_cased, text
from tracesite_sdk.transcripts.documents import Document, Skip, Tables, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
)
from tracesite_sdk.transcripts.parsing.gemini_parts import read_parts, replies, results, usage_of
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

NAME = "google_adk"

_TAGS = ("expected",)
_MAX_TRIED = 20
_USER = "user"
_TABLES = {
    "sessions": {"id", "app_name", "user_id", "state"},
    "events": {"id", "app_name", "user_id", "session_id", "invocation_id", "timestamp"},
}
_SESSION_FIELDS = ("id", "user_id", "events", "last_update_time", "create_time", "update_time")
_CASE_FIELDS = ("conversation", "creation_timestamp")
_TURN_FIELDS = ("user_content", "final_response", "intermediate_data", "creation_timestamp")
_EVENT_FIELDS = (
    *("id", "author", "content", "timestamp", "usage_metadata", "model_version", "error_message", "actions"),
    *("partial", "turn_complete"),
)


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a session, an event or an evaluation set, they are one of the first form, or the
    tables are ADK's."""
    if isinstance(document, Tables):
        return document.have(_TABLES)
    values = first_values(document, _MAX_TRIED)
    return any(_is_session(value) or _is_event(value) or _is_set(value) for value in values) or _are_queries(values)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions and cases of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, entries, about) in enumerate(_conversations(document, skip)):
        if has_conversation(entries):
            yield Transcript(entries=partial(iter, entries), place=place, **about)
        else:
            skip(where or "(all)", EMPTY_CONVERSATION)


def _conversations(document: Document, skip: Skip) -> Iterator[tuple[str, list[Entry], dict[str, Any]]]:
    """Yield the place, the entries and the facts of each conversation."""
    if isinstance(document, Tables):
        for row in document.rows("sessions", "id"):
            yield _of_session(
                f"session {row['id']}", {**row, "state": decoded(row.get("state"))}, _stored(document, row), skip
            )
        return
    values, numbered = first_values(document, _MAX_TRIED), numbered_values(document)
    if not isinstance(document, dict) and any(map(_is_event, values)):
        yield "", list(_entries(numbered, skip)), {}
        return
    if _are_queries(values):
        yield (
            "",
            [entry for number, (_where, value) in enumerate(numbered) for entry in _query(number, fields(value))],
            {"tags": _TAGS},
        )
        return
    for where, value in numbered:
        if _is_session(value):
            session = snake_cased(value)
            events = ((join_place(where, f"events[{index}]"), event) for index, event in enumerate(session["events"]))
            yield _of_session(where, session, events, skip)
        elif _is_set(value):
            yield from _cases(where, snake_cased(value), skip)
        else:
            skip(where or "(all)", "neither a session nor an evaluation set")


def _of_session(
    where: str, session: dict[str, Any], events: Iterable[tuple[str, Any]], skip: Skip
) -> tuple[str, list[Entry], dict[str, Any]]:
    about = {"external_id": text(session.get("id")), "end_user": text(session.get("user_id"))}
    return where, list(_entries(events, skip)), {**about, "metadata": rest(session, _SESSION_FIELDS)}


def _stored(database: Tables, session: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the events of a session in a database with their places."""
    of_session = {"session_id": session["id"], "app_name": session["app_name"], "user_id": session["user_id"]}
    for row in database.rows("events", "timestamp", **of_session):
        data = decoded(row.pop("event_data", None))
        columns = {name: decoded(value) for name, value in row.items() if name not in of_session}
        yield f"event {row['id']}", {**columns, **fields(data)}


def _is_session(value: object) -> bool:
    session = snake_cased(value)
    is_named = isinstance(session.get("app_name"), str) and isinstance(session.get("user_id"), str)
    return is_named and isinstance(session.get("events"), list)


def _is_event(value: object) -> bool:
    event = snake_cased(value)
    is_named = isinstance(event.get("author"), str) and isinstance(event.get("invocation_id"), str)
    return is_named and (
        isinstance(fields(event.get("content")).get("parts"), list) or isinstance(event.get("actions"), dict)
    )


def _is_set(value: object) -> bool:
    cases = snake_cased(value).get("eval_cases")
    return isinstance(cases, list) and (
        "eval_set_id" in snake_cased(value) or any("eval_id" in snake_cased(case) for case in cases)
    )


def _are_queries(values: list[Any]) -> bool:
    return any(
        "query" in fields(value) and isinstance(fields(value).get("expected_tool_use"), list) for value in values
    )


# --- Sessions ---------------------------------------------------------------------------------------------------------


def _entries(events: Iterable[tuple[str, Any]], skip: Skip) -> Iterator[Entry]:
    seen: set[str] = set()
    calls: dict[str | None, Call] = {}
    answers: dict[str, str] = {}
    """The ids of results by those of their calls."""
    for index, (where, value) in enumerate(events):
        if not isinstance(value, dict):
            skip(where, "not an object")
            continue
        event = snake_cased(value)
        own = text(event.get("id"))
        own = own if own is not None and own not in seen else str(index)
        seen.add(own)
        for entry in _event(own, event):
            if isinstance(entry, Reply):
                calls.update((call.id, call) for call in entry.calls)
            elif isinstance(entry, Result) and entry.call_ids:
                (call_id,) = entry.call_ids
                if call_id in answers:
                    entry = replace(entry, call=calls.get(call_id), replaces=answers[call_id])
                answers[call_id] = entry.id
            yield entry


def _event(own: str, event: dict[str, Any]) -> Iterator[Entry]:
    if event.get("partial") in (True, 1):
        return
    said, author = items(fields(event.get("content")).get("parts")), text(event.get("author"))
    at, actions = instant(event.get("timestamp")), rest(snake_cased(event.get("actions")), ("compaction",))
    parts, error = read_parts(said), text(event.get("error_message")) or text(event.get("error_code"))
    metadata = {**rest(event, _EVENT_FIELDS), **rest({"actions": actions}, ())}
    if compacted := fields(snake_cased(fields(event.get("actions")).get("compaction")).get("compacted_content")):
        summary = read_parts(compacted.get("parts")).content
        yield Prompt(
            id=f"{own}#compaction",
            role="system",
            content=summary,
            created_at=at,
            is_aside=True,
            metadata={"type": "compaction"},
        )
    if parts.responses and not parts.calls and (author == _USER or not parts.visible):
        yield from results(own, parts, at)
        if not parts.visible:
            return
    if author == _USER and parts.visible:
        yield Prompt(id=own, role="user", content=parts.content, created_at=at, metadata=metadata)
    elif author != _USER and (parts.visible or parts.calls or parts.reasoning or error):
        reply = Reply(
            id=own,
            content=None,
            agent_name=author,
            model=text(event.get("model_version")),
            usage=usage_of(event.get("usage_metadata")),
            created_at=at,
            error=error,
            metadata=metadata,
        )
        yield from replies(reply, said)


# --- Evaluation sets --------------------------------------------------------------------------------------------------


def _cases(where: str, evaluation: dict[str, Any], skip: Skip) -> Iterator[tuple[str, list[Entry], dict[str, Any]]]:
    set_id, shared = text(evaluation.get("eval_set_id")), rest(evaluation, ("eval_cases", "creation_timestamp"))
    size = len(as_json(shared))
    for index, value in enumerate(items(evaluation.get("eval_cases"))):
        case, path = snake_cased(value), join_place(where, f"eval_cases[{index}]")
        own = text(case.get("eval_id"))
        turns = items(case.get("conversation"))
        entries = [entry for number, turn in enumerate(turns) for entry in _turn(number, snake_cased(turn))]
        about = {
            "external_id": f"{set_id}/{own}" if set_id and own else None,
            "end_user": text(snake_cased(case.get("session_input")).get("user_id")),
            "created_at": instant(case.get("creation_timestamp")),
            "tags": _TAGS,
            "metadata": {**shared, **rest(case, _CASE_FIELDS)},
            "put_in": size,
        }
        yield path, entries, about


def _turn(number: int, turn: dict[str, Any]) -> Iterator[Entry]:
    at, data = instant(turn.get("creation_timestamp")), snake_cased(turn.get("intermediate_data"))
    asked = read_parts(fields(turn.get("user_content")).get("parts"))
    yield Prompt(id=str(number), role="user", content=asked.content, created_at=at, metadata=rest(turn, _TURN_FIELDS))
    for index, event in enumerate(items(data.get("invocation_events"))):
        yield from _event(f"{number}.{index}", snake_cased(event))
    for index, pair in enumerate(items(data.get("intermediate_responses"))):
        author, *said = items(pair) or [None]
        yield Reply(
            id=f"{number}.said{index}", content=read_parts(said[0] if said else None).content, agent_name=text(author)
        )
    used = [{"functionCall": call} for call in items(data.get("tool_uses"))]
    if used:
        yield Reply(id=f"{number}.calls", content=None, calls=read_parts(used).calls)
    responses = [{"functionResponse": response} for response in items(data.get("tool_responses"))]
    yield from results(f"{number}.calls", read_parts(responses), None)
    if final := fields(turn.get("final_response")):
        yield Reply(id=f"{number}.final", content=read_parts(final.get("parts")).content)


def _query(number: int, turn: dict[str, Any]) -> Iterator[Entry]:
    yield Prompt(id=str(number), role="user", content=content(turn.get("query")))
    for index, said in enumerate(items(turn.get("expected_intermediate_agent_responses"))):
        response = fields(said)
        yield Reply(
            id=f"{number}.said{index}", content=content(response.get("text")), agent_name=text(response.get("author"))
        )
    used = map(fields, items(turn.get("expected_tool_use")))
    calls = [Call(id=None, name=text(call.get("tool_name")) or "", args=call.get("tool_input")) for call in used]
    if calls:
        yield Reply(id=f"{number}.calls", content=None, calls=calls)
    if turn.get("reference"):
        yield Reply(id=f"{number}.final", content=content(turn["reference"]))
