"""Sessions of OpenCode as `opencode export` writes them: `{"info": {...}, "messages": [{"info": {...}, "parts": [...]}]}`.

A list or lines of such objects are read too, and a list or lines of `{"info", "parts"}`, as OpenCode's server lists the
messages of a session.

* `info` of the session names it; `title` is the title unless OpenCode made it up ("New session - ...").
* A message of the role `user` is a prompt: its `text`, `file`, `agent` and `subtask` parts. Text that OpenCode added
  (`synthetic`: files that were mentioned, notices) is a message of the system, and so is a `compaction`.
* A message of the role `assistant` is one reply for each step (`step-start`): its `text`, `reasoning`, and `tool` parts, with
  the tokens and the cost of its `step-finish`, else of the message. `error` is why the last reply failed; where it is
  `MessageAbortedError` in the last message, the session was aborted. A summary (`summary: true`), which replaces what was
  said before it for the model, is a step and never the answer.
* A `tool` part holds call and result: it has failed in the state `error`, or `completed` with another exit code than 0, and is open in
  the states `pending` and `running`. The `metadata` of the state is the data.
* `patch`, `snapshot` and `retry` parts are metadata of the reply. Of `summary.diffs` the contents of the files are left out.

A sub-agent (the tool `task`) has a session of its own, which names its parent (`parentID`); the data of the call name it.
Ids are unique in the world, so a file may hold any state of a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from traces_app.normalize.json_values import between, fields, instant, items, rest, text
from traces_app.transcripts.entries import Call, Entry, Reply, Result, Said, Transcript
from traces_app.transcripts.files.documents import Document, Files, Lines, Skip

NAME = "opencode"

_ABORTED = "MessageAbortedError"
_MADE_UP = ("New session - ", "Child session - ")
_SHOWN = ("file", "agent", "subtask")
"""Parts of a prompt beside its text."""
_BESIDE = {"patch": "patches", "snapshot": "snapshots", "retry": "retries", "agent": "agents", "subtask": "subtasks"}
"""Parts of a reply that are metadata, and their name there."""
_PART_IDS = ("id", "sessionID", "messageID", "type")
_SESSION_FIELDS = ("id", "title")
_SAID_FIELDS = ("id", "sessionID", "role", "time", "summary")
_REPLY_FIELDS = ("id", "sessionID", "role", "time", "modelID", "tokens", "cost", "agent", "summary", "parentID")
_USAGE = {"input": "input_tokens", "output": "output_tokens"}


def recognises(document: Document) -> bool:
    """Return whether one of the first values is an export, or a message of one."""
    if isinstance(document, Files):
        return False
    if isinstance(document, Lines):
        found = document.head()
    else:
        found = items(document)[:50] if isinstance(document, list) else [document]
    return any(_is_export(value) or _is_message(value) for value in found)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; `skip` is told of what they leave out."""
    for place, session in enumerate(_sessions(document, skip)):
        own_id = text(session.info.get("id"))
        title = text(session.info.get("title"))
        yield Transcript(
            entries=partial(iter, list(_entries(session, skip))),
            place=place,
            external_id=own_id,
            has_own_ids=own_id is not None,
            title=None if title is None or title.startswith(_MADE_UP) else title,
            status="aborted" if _is_aborted(session) else None,
            created_at=instant(fields(session.info.get("time")).get("created")),
            metadata={**rest(session.info, _SESSION_FIELDS), **session.beside},
        )


# --- Sessions ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Session:
    info: dict[str, Any]
    messages: list[tuple[str, Any]] = field(default_factory=list)
    """With their places."""
    beside: dict[str, Any] = field(default_factory=dict)


def _sessions(document: Document, skip: Skip) -> Iterator[_Session]:
    session: _Session | None = None
    for where, value in _values(document):
        if _is_export(value):
            if session is not None:
                yield session
            session = None
            found = enumerate(value["messages"])
            yield _Session(
                info=value["info"],
                messages=[(_join(where, f"messages[{index}]"), message) for index, message in found],
                beside=rest(value, ("info", "messages")),
            )
        elif _is_message(value):
            own_id = text(value["info"].get("sessionID"))
            if session is not None and own_id != session.info.get("id"):
                yield session
                session = None
            session = session or _Session({"id": own_id})
            session.messages.append((where, value))
        else:
            skip(where or "(all)", "neither an export of OpenCode nor a message of one")
    if session is not None:
        yield session


def _values(document: Document) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Lines):
        yield from ((f"line {line.number}", line.value) for line in document)
    elif isinstance(document, list):
        yield from ((f"[{index}]", value) for index, value in enumerate(document))
    else:
        yield "", document


def _join(where: str, key: str) -> str:
    return f"{where}: {key}" if where.startswith("line ") else f"{where}.{key}" if where else key


def _is_export(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    if not isinstance(fields(value.get("info")).get("id"), str):
        return False
    messages = value["messages"][:50]
    return any(map(_is_message, messages)) if messages else "time" in value["info"]


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("parts"), list):
        return False
    info = fields(value.get("info"))
    return info.get("role") in ("user", "assistant") and isinstance(info.get("id"), str) and isinstance(info.get("time"), dict)  # fmt: skip


def _is_aborted(session: _Session) -> bool:
    last = fields(fields(session.messages[-1][1]).get("info")) if session.messages else {}
    return fields(last.get("error")).get("name") == _ABORTED


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(session: _Session, skip: Skip) -> Iterator[Entry]:
    for where, message in session.messages:
        info = fields(fields(message).get("info"))
        own, role = text(info.get("id")) or where, text(info.get("role"))
        parts: list[dict[str, Any]] = []
        for index, part in enumerate(items(fields(message).get("parts"))):
            if isinstance(part, dict):
                parts.append(part)
            else:
                skip(_join(where, f"parts[{index}]"), "not an object")
        if role == "user":
            yield from _asked(own, info, parts)
        elif role == "assistant":
            yield from _replied(own, info, parts)
        else:
            skip(where, f"the role is {role or 'missing'}; a role is one of user, assistant")


def _created(info: dict[str, Any]) -> Any:
    return instant(fields(info.get("time")).get("created"))


def _asked(own: str, info: dict[str, Any], parts: list[dict[str, Any]]) -> Iterator[Said]:
    typed: list[Any] = []
    added: list[Any] = []
    others: list[dict[str, Any]] = []
    for part in parts:
        kind = text(part.get("type"))
        if kind == "text":
            added_by_client = part.get("synthetic") is True or part.get("ignored") is True
            (added if added_by_client else typed).append({"type": "text", "text": text(part.get("text")) or ""})
        elif kind in _SHOWN:
            typed.append({"type": kind, **rest(part, _PART_IDS)})
        else:
            others.append(rest(part, ("id", "sessionID", "messageID")))
    metadata = {**rest(info, _SAID_FIELDS), **_summary(info)}
    if typed or not (added or others):
        yield Said(id=own, role="user", content=_content(typed), created_at=_created(info), metadata=metadata)
    if added or others:
        compactions = [part for part in others if part.get("type") == "compaction"]
        yield Said(
            id=f"{own}#added" if typed else own,
            role="system",
            content=_content(added) or ("[compaction]" if compactions else None),
            created_at=_created(info),
            is_aside=True,
            metadata={**({} if typed else metadata), **rest({"parts": others}, ())},
        )


def _summary(info: dict[str, Any]) -> dict[str, Any]:
    """Return what a prompt led to, without the contents of the files before and after it."""
    summary = fields(info.get("summary"))
    diffs = [rest(diff, ("before", "after", "patch")) for diff in items(summary.get("diffs")) if isinstance(diff, dict)]
    return rest({"summary": rest({**summary, "diffs": diffs}, ())}, ())


def _content(parts: list[Any]) -> str | list[Any] | None:
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return parts or None


@dataclass(kw_only=True)
class _Step:
    texts: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    began: Any = None
    usage: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def _steps(parts: list[dict[str, Any]]) -> list[_Step]:
    """Return the steps of a reply: what lies between one `step-start` and the next."""
    found = [_Step()]
    for part in parts:
        kind = text(part.get("type"))
        step = found[-1]
        if kind == "step-start":
            if step != _Step():
                found.append(_Step())
            continue
        step.began = step.began or instant(fields(part.get("time")).get("start"))
        if kind == "text":
            said = text(part.get("text"))
            step.texts += [{"type": "text", "text": said}] if said else []
        elif kind == "reasoning":
            thought = text(part.get("text"))
            step.reasoning += [thought] if thought else []
        elif kind == "tool":
            step.tools.append(part)
        elif kind == "step-finish":
            step.usage = _usage(part)
            step.metadata |= rest({"finish": part.get("reason")}, ())
        elif kind in _BESIDE:
            step.metadata.setdefault(_BESIDE[kind], []).append(rest(part, _PART_IDS))
        else:
            step.texts.append(rest(part, ("id", "sessionID", "messageID")))
    return found


def _replied(own: str, info: dict[str, Any], parts: list[dict[str, Any]]) -> Iterator[Entry]:
    steps = _steps(parts)
    is_summary = info.get("summary") is True
    agent = text(info.get("agent")) or text(info.get("mode"))
    about = rest(info, (*_REPLY_FIELDS, "error"))
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        id_ = f"{own}.{number}" if number else own
        yield Reply(
            id=id_,
            content=_content(step.texts),
            calls=[_call(part) for part in step.tools],
            reasoning="\n\n".join(step.reasoning) or None,
            agent_name=agent,
            model=text(info.get("modelID")),
            usage=step.usage or (_usage(info) if len(steps) == 1 else None),
            created_at=step.began if number else _created(info),
            step_id=id_,
            parent_call="" if is_summary else None,
            error=_error(info.get("error")) if is_last else None,
            metadata={**about, **step.metadata},
        )
        for part in step.tools:
            if (result := _result(part, id_)) is not None:
                yield result


def _usage(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return the tokens, under the names that are counted, and the cost."""
    tokens = {_USAGE.get(name, name): count for name, count in fields(part.get("tokens")).items()}
    return {**tokens, **rest({"cost": part.get("cost")}, ())} if tokens else None


def _error(error: object) -> str | None:
    if not isinstance(error, dict):
        return text(error)
    said = text(fields(error.get("data")).get("message")) or text(error.get("message"))
    return ": ".join(filter(None, (text(error.get("name")), said))) or "error"


def _call_id(part: dict[str, Any]) -> str | None:
    return text(part.get("callID")) or text(part.get("id"))


def _call(part: dict[str, Any]) -> Call:
    state = fields(part.get("state"))
    return Call(
        id=_call_id(part),
        name=text(part.get("tool")) or "",
        args=state.get("input") or text(state.get("raw")) or {},
        started_at=instant(fields(state.get("time")).get("start")),
        metadata={
            **rest(part, (*_PART_IDS, "callID", "tool", "state")),
            **rest(state, ("status", "input", "raw", "output", "error", "metadata", "time", "attachments")),
        },
    )


def _result(part: dict[str, Any], id_: str) -> Result | None:
    """Return the result that a tool part holds; None while it has none."""
    state, call_id = fields(part.get("state")), _call_id(part)
    status, time = text(state.get("status")), fields(state.get("time"))
    if status not in ("completed", "error"):
        return None
    data = state.get("metadata")
    code = fields(data).get("exit")
    began, ended = instant(time.get("start")), instant(time.get("end"))
    return Result(
        id=f"{id_}#{call_id}",
        output=state.get("output") if status == "completed" else state.get("error"),
        failed=status == "error" or (isinstance(code, int) and code != 0),
        created_at=ended,
        started_at=began,
        duration=between(began, ended),
        data=data or None,
        call_ids=[call_id] if call_id else [],
        name=text(part.get("tool")),
        attachments=items(state.get("attachments")) or None,
    )
