"""Read messages and states of AutoGen from 0.4 on (AgentChat).

* messages and events (`{"source", "type": "TextMessage", "content", "models_usage"}`): a list, lines, or the `messages` of a
  `TaskResult`; one after the lines repeats them;
* what `save_state()` of a team returns, whose manager has them as `message_thread`; what it returns of an agent, which has the
  messages of the model (`llm_context`).

The source `user` is the user, any other an agent. A `ToolCallRequestEvent` is a reply with calls, and a `ThoughtEvent` its text, or
the reasoning of another next reply of its agent; a `ToolCallExecutionEvent` has the results. The code of a `CodeGenerationEvent` is a call
too. A `ToolCallSummaryMessage` repeats results as the agent's text. A `StopMessage` is a system message. Events of selecting,
asking and remembering, and pieces of streams, are left out.

The logs of AutoGen's core (`LLMCall`, `Message` ...) and the contexts of the agents of a team are not read. There are no ids of
conversations, and no times before `created_at` existed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import content, fields, instant, items, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
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

NAME = "autogen"

_MAX_TRIED = 50
_CODE = "code_execution"
_USERS = ("user", "user_proxy", "userproxy", "human")
_TEXTS = ("TextMessage", "MultiModalMessage", "HandoffMessage", "ToolCallSummaryMessage", "StructuredMessage")
_LEFT_OUT = (
    *("MemoryQueryEvent", "UserInputRequestedEvent", "SelectSpeakerEvent", "SelectorEvent"),
    "ModelClientStreamingChunkEvent",
)
_OTHERS = ("StopMessage", "ThoughtEvent", "ToolCallRequestEvent", "ToolCallExecutionEvent", "CodeGenerationEvent", "CodeExecutionEvent")  # fmt: skip
_TYPES = frozenset((*_TEXTS, *_OTHERS, *_LEFT_OUT))
_FIELDS = ("id", "source", "type", "content", "models_usage", "created_at", "tool_calls", "results")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a message, the result of a task or a state."""
    return any(
        _is_message(value) or _is_task(value) or _state(value) is not None
        for value in first_values(document, _MAX_TRIED)
    )


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, entries, metadata) in enumerate(_conversations(document, skip)):
        if has_conversation(entries):
            yield Transcript(entries=partial(iter, entries), place=place, metadata=metadata)
        else:
            skip(where or "(all)", EMPTY_CONVERSATION)


def _conversations(document: Document, skip: Skip) -> Iterator[tuple[str, list[Entry], dict[str, Any]]]:
    """Yield the place, the entries and the metadata of each conversation."""
    if not isinstance(document, dict) and any(map(_is_message, first_values(document, _MAX_TRIED))):
        stop = next((value.get("stop_reason") for _where, value in numbered_values(document) if _is_task(value)), None)
        numbered = ((where, value) for where, value in numbered_values(document) if not _is_task(value))
        yield "", list(_entries(numbered, skip)), rest({"stop_reason": stop}, ())
        return
    for where, value in numbered_values(document):
        state = _state(value)
        if _is_task(value):
            yield where, list(_entries(_numbered(value, where, "messages"), skip)), rest(value, ("messages",))
        elif state is not None and "message_thread" in state:
            metadata = rest(state, ("message_thread", "message_buffer", "agent_states"))
            yield where, list(_entries(_numbered(state, where, "message_thread"), skip)), metadata
        elif state is not None:
            yield where, list(_context(_numbered(fields(state["llm_context"]), where, "messages"), skip)), {}
        else:
            skip(where or "(all)", "neither messages nor a state")


def _numbered(value: dict[str, Any], where: str, key: str) -> Iterator[tuple[str, Any]]:
    return ((f"{join_place(where, key)}[{index}]", message) for index, message in enumerate(items(value.get(key))))


def _kind(value: object) -> str:
    kind = fields(value).get("type")
    # A structured message names its class: StructuredMessage[Plan].
    return kind.partition("[")[0] if isinstance(kind, str) else ""


def _foreign(value: object) -> str:
    """Return why a value is no message."""
    is_object = isinstance(value, dict)
    return f"the type is {_kind(value)!r:.60}, which is none of AutoGen's" if is_object else "not an object"


def _is_message(value: object) -> bool:
    return _kind(value) in _TYPES and isinstance(fields(value).get("source"), str) and "content" in fields(value)


def _is_task(value: object) -> bool:
    return any(map(_is_message, items(fields(value).get("messages"))[:_MAX_TRIED]))


def _state(value: object) -> dict[str, Any] | None:
    """Return the state that has the conversation: that of a team's manager, or that of an agent; None for any other value."""
    state = fields(value)
    if not (_kind(state).endswith("State") and isinstance(state.get("version"), str)):
        return None
    for inner in (state, *fields(state.get("agent_states")).values()):
        # Agents are in a container, and a team can be inside of an agent.
        for found in (fields(inner), fields(fields(inner).get("agent_state"))):
            if isinstance(found.get("message_thread"), list):
                return {**rest(state, ("agent_states",)), **found}
    return state if isinstance(fields(state.get("llm_context")).get("messages"), list) else None


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(numbered: Iterable[tuple[str, Any]], skip: Skip) -> Iterator[Entry]:
    seen: set[str] = set()
    thought: tuple[str, dict[str, Any]] | None = None
    """A thought with its id, until its agent says something."""
    for index, (where, message) in enumerate(numbered):
        kind = _kind(message)
        if kind in _LEFT_OUT:
            continue
        if kind not in _TYPES:
            skip(where, _foreign(message))
            continue
        own = text(message.get("id")) or str(index)
        own = own if own not in seen else str(index)
        seen.add(own)
        if thought is not None and (kind == "ThoughtEvent" or thought[1].get("source") != message.get("source")):
            yield _reply(*thought, kind="ThoughtEvent")
            thought = None
        if kind == "ThoughtEvent":
            thought = own, message
        elif kind in ("ToolCallExecutionEvent", "CodeExecutionEvent"):
            yield from _results(own, message)
        elif kind == "StopMessage" or (kind in _TEXTS and (text(message.get("source")) or "").lower() in _USERS):
            yield _prompt(own, message, is_of_user=kind != "StopMessage")
        else:
            reasoning = text(thought[1].get("content")) if thought is not None else None
            yield _reply(thought[0] if thought is not None else own, message, kind=kind, reasoning=reasoning)
            thought = None
    if thought is not None:
        yield _reply(*thought, kind="ThoughtEvent")


def _prompt(own: str, message: dict[str, Any], *, is_of_user: bool) -> Prompt:
    return Prompt(
        id=own,
        role="user" if is_of_user else "system",
        content=_parts(message.get("content")),
        created_at=instant(message.get("created_at")),
        is_aside=not is_of_user,
        metadata={**rest(message, _FIELDS), **({} if is_of_user else {"source": message.get("source")})},
    )


def _reply(own: str, message: dict[str, Any], *, kind: str, reasoning: str | None = None) -> Reply:
    said, calls = message.get("content"), list[Call]()
    if kind == "ThoughtEvent":
        said, reasoning = None, text(said)
    elif kind == "ToolCallRequestEvent":
        # Beside calls it is what the model said.
        said, reasoning, calls = reasoning, None, _calls(said)
    elif kind == "CodeGenerationEvent":
        blocks = [fields(block) for block in items(message.get("code_blocks"))]
        calls = [Call(id=None, name=_CODE, args=rest(block, ("packages",))) for block in blocks]
    metadata = rest(message, (*_FIELDS, "code_blocks"))
    return Reply(
        id=own,
        content=_parts(said),
        calls=calls,
        reasoning=reasoning,
        agent_name=text(message.get("source")),
        usage=fields(message.get("models_usage")) or None,
        created_at=instant(message.get("created_at")),
        metadata={**metadata, "type": kind} if kind in ("HandoffMessage", "ToolCallSummaryMessage") else metadata,
    )


def _calls(requested: object) -> list[Call]:
    return [
        Call(id=text(call.get("id")), name=text(call.get("name")) or "", args=call.get("arguments"))
        for call in items(requested)
        if isinstance(call, dict)
    ]


def _results(own: str, message: dict[str, Any]) -> Iterator[Result]:
    at = instant(message.get("created_at"))
    if isinstance(ran := message.get("result"), dict):
        code = ran.get("exit_code")
        metadata = rest({"exit_code": code}, ())
        yield Result(
            id=own,
            output=ran.get("output"),
            failed=code != 0 if isinstance(code, int) else None,
            created_at=at,
            name=_CODE,
            metadata=metadata,
        )
    for number, value in enumerate(items(message.get("content"))):
        result = fields(value)
        call_id, failed = text(result.get("call_id")), result.get("is_error")
        yield Result(
            id=f"{own}#{number}",
            output=result.get("content"),
            failed=failed if isinstance(failed, bool) else None,
            created_at=at,
            call_ids=[call_id] if call_id else [],
            name=text(result.get("name")),
        )


def _parts(said: object) -> str | list[Any] | None:
    """Return the text of a message, or its texts and images; of a structured message its JSON."""
    if isinstance(said, list):
        return [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{part['data']}"}}
            if isinstance(fields(part).get("data"), str)
            else part
            for part in said
        ]
    return content(said)


def _context(numbered: Iterable[tuple[str, Any]], skip: Skip) -> Iterator[Entry]:
    """Yield the messages that an agent keeps for its model."""
    for index, (where, value) in enumerate(numbered):
        kind, message, own = _kind(value), fields(value), str(index)
        source = text(message.get("source"))
        if kind == "FunctionExecutionResultMessage":
            yield from _results(own, message)
        elif kind == "AssistantMessage":
            said, thought = message.get("content"), text(message.get("thought"))
            kind = "ToolCallRequestEvent" if isinstance(said, list) else "TextMessage"
            yield _reply(own, rest(message, ("type", "thought")), kind=kind, reasoning=thought)
        elif kind == "UserMessage" and (source or "user").lower() not in _USERS:
            # What another agent said.
            yield _reply(own, rest(message, ("type",)), kind="TextMessage")
        elif kind in ("UserMessage", "SystemMessage"):
            yield _prompt(own, rest(message, ("type",)), is_of_user=kind == "UserMessage")
        else:
            skip(where, _foreign(value))
