"""Read trajectories of OpenHands: the events of a conversation, in all three generations of the format.

* A document is a list of events, as downloaded or saved (also as JSON lines), or an object with such a list under
  `trajectory`, `history`, `events` or `items`. `items` is a page of the API, `history` an evaluation (`output.jsonl`,
  one line for each `instance_id`) whose other fields are metadata. A history of 2024 may hold pairs of action and
  observation, and its events may have their arguments beside the action instead of in `args`.
* Events of openhands-ai (openhands/events/serialization) have an `action` or an `observation`. An action of the agent
  with `tool_call_metadata` is a call of that tool with the arguments of the model; without it (no function calling) an
  action that does something is a call of the action itself. `message` is a message, `finish` without a tool the last
  reply. An observation is the result of the call with its id, else of its `cause`, else of the call before it. It
  has failed if it is an `error` or `user_rejected`, or if its exit code is not 0.
* Events of the agent SDK (openhands/sdk/event) have a `kind`. `ActionEvent` is a call, and calls in a row with one
  `llm_response_id` are one reply; `ObservationEvent`, `UserRejectObservation` and `AgentErrorEvent` are results.

OpenHands executes the calls of a response one by one, each as an event, so in the older generations each is a step; the
first step has the tokens of the response. Steps of a delegate are below the call that delegated. Other events (states,
recalls, condensations) are kept in the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import as_json, content, fields, instant, items, rest, text, time_flags
from tracesite_sdk.records import SessionStatus
from tracesite_sdk.transcripts.documents import Document, Lines, Skip, skip_silently
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "openhands"

_CONTAINERS = ("trajectory", "history", "events", "items")
_MAX_TRIED = 20
"""Values that are tested to recognise a document."""

_CALL_ACTIONS = frozenset(
    {"read", "write", "edit", "run", "run_ipython", "browse", "browse_interactive", "call_tool_mcp", "mcp", "delegate"}
    | {"think", "reject", "task_tracking", "push", "send_pr"}
)
"""Actions that are calls even if they name no tool."""
_ACTIONS = _CALL_ACTIONS | {
    "message",
    "finish",
    "system",
    "recall",
    "null",
    "change_agent_state",
    "condensation",
    "start",
}
_ACTIONS |= {"condensation_request", "pause", "resume", "stop", "loop_recovery", "initializing"}
_OBSERVATIONS = frozenset(
    {"read", "write", "edit", "run", "run_ipython", "browse", "mcp", "delegate", "think", "error", "success", "null"}
    | {"agent_state_changed", "user_rejected", "recall", "condense", "download", "task_tracking", "chat", "message"}
    | {"server_ready", "loop_detection"}
)
_ARGUMENTS = frozenset(
    {"args", "command", "code", "path", "url", "content", "thought", "agent", "inputs", "outputs", "query"}
    | {"final_thought", "browser_actions", "wait_for_response", "tool_call_metadata"}
)
_SOURCES = ("user", "agent", "environment")

# Fields with a column of their own; all others are kept in metadata.
_EVENT_FIELDS = ("id", "timestamp", "source", "tool_call_metadata", "args", "message", "content", "thought")
_OBSERVATION_FIELDS = ("id", "timestamp", "source", "content", "extras", "tool_call_metadata", "cause")
_ACTION_FIELDS = ("id", "timestamp", "source", "kind", "thought", "reasoning_content", "tool_name", "tool_call_id")
_CALL_FIELDS = ("security_risk", "summary", "critic_result")
_MESSAGE_FIELDS = ("id", "timestamp", "source", "kind", "llm_message")
_LLM_FIELDS = ("role", "content", "reasoning_content", "thinking_blocks")
_ANSWER_FIELDS = ("id", "timestamp", "source", "kind", "tool_name", "tool_call_id", "observation", "error", "action_id")


def recognises(document: Document) -> bool:
    """Return whether at least half of the first values are events of OpenHands."""
    if isinstance(document, Lines):
        document = document.head()
    if isinstance(document, list) and not _are_events(document):
        return any(_are_events(_events_of(item)[0]) for item in islice(document, _MAX_TRIED))
    return _are_events(_events_of(document)[0])


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, others, events) in enumerate(_conversations(document)):
        if events is None:
            skip(where or "(all)", f"no events under any of {', '.join(_CONTAINERS)}")
            continue
        conversation = _Conversation()
        # The status and the other events are known only at the end.
        if not sum(1 for _entry in conversation.entries(events(), skip_silently)):
            skip(where or "(all)", "no messages or actions")
            continue
        yield Transcript(
            entries=partial(_read_again, events, skip),
            place=place,
            external_id=conversation.first_id or text(others.get("instance_id")),
            has_own_ids=conversation.first_id is not None,
            title=text(fields(others.get("issue")).get("title")),
            status="error" if others.get("error") else conversation.status,
            metadata=rest({**others, "events": conversation.others}, ()),
        )


def _read_again(events: _Events, skip: Skip) -> Iterator[Entry]:
    return _Conversation().entries(events(), skip)


# --- Conversations --------------------------------------------------------------------------------------------------


_Events = Callable[[], Iterator[tuple[str, Any]]]
"""Returns the events of a conversation with their places; each call reads them again, so that a long file is not held."""


def _conversations(document: Document) -> Iterator[tuple[str, dict[str, Any], _Events | None]]:
    """Yield the place of each conversation, its other fields, and its events; None if there are none."""
    if isinstance(document, Lines):
        if _are_events(document.head()):
            yield "", {}, partial(_line_events, document)
        else:
            for line in document:
                yield f"line {line.number}", *_split(line.value, f"line {line.number}: ")
    elif isinstance(document, list) and not _are_events(document):
        for index, item in enumerate(document):
            yield f"[{index}]", *_split(item, f"[{index}]")
    else:
        yield "", *_split(document, "")


def _split(item: object, where: str) -> tuple[dict[str, Any], _Events | None]:
    events, key = _events_of(item)
    if events is None:
        return {}, None
    others = rest(item, _CONTAINERS) if isinstance(item, dict) else {}
    return others, lambda: ((f"{where}{key}[{index}]", event) for index, event in enumerate(events))


def _line_events(document: Lines) -> Iterator[tuple[str, Any]]:
    return ((f"line {line.number}", event) for line in document for event in _flat([line.value]))


def _events_of(item: object) -> tuple[list[Any] | None, str]:
    """Return the events of a conversation, with the pairs of an older history flattened, and the key that holds them."""
    key = ""
    if isinstance(item, dict):
        key = next((key for key in _CONTAINERS if isinstance(item.get(key), list)), "")
        item = item.get(key)
    return (_flat(item) if isinstance(item, list) else None), key


def _flat(values: list[Any]) -> list[Any]:
    return [event for value in values for event in (value if isinstance(value, list) else [value])]


def _are_events(values: list[Any] | None) -> bool:
    if not values:
        return False
    first = _flat(values[:_MAX_TRIED])[:_MAX_TRIED]
    known = sum(map(_is_event, first))
    return known > 0 and 2 * known >= len(first)


def _is_event(value: object) -> bool:
    if not isinstance(value, dict) or "role" in value or "type" in value:
        return False
    kind = value.get("kind")
    if isinstance(kind, str):
        return kind in _SDK or (kind.endswith("Event") and value.get("source") in _SOURCES)
    action, observation = value.get("action"), value.get("observation")
    if isinstance(observation, str) and observation in _OBSERVATIONS:
        return "content" in value or "extras" in value
    # Older events have their arguments beside the action; without arguments it may be a permission or an audit record.
    return isinstance(action, str) and action in _ACTIONS and not _ARGUMENTS.isdisjoint(value)


def _with_joined_calls(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Join the calls of one response of the SDK to one reply."""
    held: Reply | None = None
    for entry in entries:
        response = entry.metadata.get("llm_response_id") if isinstance(entry, Reply) and entry.calls else None
        if held is not None and isinstance(entry, Reply) and response == held.metadata.get("llm_response_id"):
            held = replace(held, calls=[*held.calls, *entry.calls], content=held.content or entry.content)
            continue
        if held is not None:
            yield held
        held = entry if isinstance(entry, Reply) and response is not None else None
        if held is None:
            yield entry
    if held is not None:
        yield held


@dataclass(eq=False)
class _Conversation:
    """Turns the events of a conversation into entries; holds the facts that later events refer to."""

    others: list[Any] = field(default_factory=list)
    """Events that become no entries."""
    status: SessionStatus | None = None
    first_id: str | None = None
    """The id of the first SDK event: it is globally unique, and events do not name their conversation."""
    _ids: set[str] = field(default_factory=set)
    _responses: set[str] = field(default_factory=set)
    _has_message: bool = False
    _calls: dict[str | None, tuple[str, str | None]] = field(default_factory=dict)
    """Name and id of a call, by the event id of its action."""
    _last: tuple[str, str | None] | None = None
    _delegates: list[tuple[str, str | None]] = field(default_factory=list)
    """Ids of the delegating calls without a result, with the names of their agents."""
    _started: set[str] = field(default_factory=set)
    """Ids of the calls of external agents (ACP) that have an entry."""

    def entries(self, events: Iterator[tuple[str, Any]], skip: Skip) -> Iterator[Entry]:
        entries = (self._read(index, where, event, skip) for index, (where, event) in enumerate(events))
        return _with_joined_calls(chain.from_iterable(entries))

    def _read(self, index: int, where: str, event: Any, skip: Skip) -> Iterator[Entry]:
        if not isinstance(event, dict):
            skip(where, "not an object")
            return
        id_ = text(event.get("id"))
        if id_ is None or id_ in self._ids or id_.startswith("-"):
            id_ = f"#{index}"
        self._ids.add(id_)
        if isinstance(event.get("kind"), str):
            yield from _SDK.get(event["kind"], _Conversation._other)(self, id_, event)
            if self.first_id is None and id_ == event.get("id"):
                self.first_id = id_
        elif isinstance(event.get("action"), str):
            yield from self._action(id_, event["action"], event)
        elif isinstance(event.get("observation"), str):
            yield from self._observation(id_, event["observation"], event)
        else:
            skip(where, "neither an action nor an observation")

    def _other(self, _id: str, event: dict[str, Any]) -> Iterator[Entry]:
        self.others.append(event)
        yield from ()

    # --- openhands-ai ---

    def _action(self, id_: str, action: str, event: dict[str, Any]) -> Iterator[Entry]:
        args = event["args"] if isinstance(event.get("args"), dict) else rest(event, _EVENT_FIELDS)
        source = event.get("source")
        tool = fields(event.get("tool_call_metadata"))
        if action == "system" and not tool:
            yield self._text_entry(
                id_, "system", args.get("content") or event.get("content"), event, rest(args, ("content",))
            )
        elif action == "message" and not tool:
            message = _with_images(args.get("content") or event.get("content"), args)
            metadata = rest(args, ("content", "image_urls", "images_urls", "action"))
            if source == "agent" or (source is None and self._has_message):
                yield self._reply(id_, message, event, metadata)
            else:
                yield self._text_entry(id_, "system" if source == "environment" else "user", message, event, metadata)
        elif action == "finish" and not tool:
            message = args.get("final_thought") or args.get("thought") or event.get("thought")
            yield self._reply(id_, content(message), event, rest(args, ("final_thought", "thought", "action")))
        elif source != "user" and (tool or action in _CALL_ACTIONS):
            yield self._call_reply(id_, action, args, tool, event)
        else:
            self.others.append(event)
        self._has_message = self._has_message or action == "message"

    def _text_entry(self, id_: str, role: Any, value: Any, event: dict[str, Any], metadata: dict[str, Any]) -> Prompt:
        return Prompt(
            id=id_,
            role=role,
            content=content(value),
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata={**metadata, **_other_fields(event)},
        )

    def _reply(self, id_: str, value: Any, event: dict[str, Any], metadata: dict[str, Any]) -> Reply:
        parent, agent = self._delegates[-1] if self._delegates else (None, None)
        return Reply(
            id=id_,
            content=content(value),
            agent_name=agent,
            parent_call=parent,
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata={**metadata, **_other_fields(event)},
        )

    def _call_reply(
        self, id_: str, action: str, args: dict[str, Any], tool: dict[str, Any], event: dict[str, Any]
    ) -> Reply:
        response = fields(tool.get("model_response"))
        message = fields(fields((items(response.get("choices")) or [None])[0]).get("message"))
        response_id = text(response.get("id"))
        is_first = response_id is None or response_id not in self._responses
        if response_id is not None:
            self._responses.add(response_id)
        name, call_id = text(tool.get("function_name")) or action, text(tool.get("tool_call_id"))
        requested_args = next(
            (
                function["arguments"]
                for call in items(message.get("tool_calls"))
                if call_id is not None and fields(call).get("id") == call_id
                if (function := fields(fields(call).get("function"))).get("arguments") is not None
            ),
            None,
        )
        thought = args.get("thought") or event.get("thought") or (message.get("content") if is_first else None)
        own = rest(args, ("thought", "action"))
        parent, agent = self._delegates[-1] if self._delegates else (None, None)
        self._calls[text(event.get("id"))] = self._last = (name, call_id)
        if action == "delegate" and call_id is not None:
            self._delegates.append((call_id, text(args.get("agent"))))
        return Reply(
            id=id_,
            content=content(thought),
            calls=[
                Call(
                    id=call_id,
                    name=name,
                    args=own if requested_args is None else requested_args,
                    # The arguments of the action may differ from those of the model.
                    metadata={"action": action, **({} if requested_args is None else {"action_args": own})}
                    if tool
                    else {},
                )
            ],
            reasoning=text(message.get("reasoning_content")) if is_first else None,
            agent_name=agent,
            parent_call=parent,
            model=text(response.get("model")) if is_first else None,
            usage=fields(response.get("usage")) or None if is_first else None,
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata=_other_fields(event) | ({"response_id": response_id} if response_id else {}),
        )

    def _observation(self, id_: str, observation: str, event: dict[str, Any]) -> Iterator[Entry]:
        tool = fields(event.get("tool_call_metadata"))
        cause = event.get("cause")
        extras = fields(event.get("extras"))
        name, call_id = text(tool.get("function_name")), text(tool.get("tool_call_id"))
        if call_id is None and name is None:
            call = self._last if cause is None else self._calls.get(text(cause))
            if call is None:
                if observation == "agent_state_changed":
                    self._set_status(extras.get("agent_state"))
                if observation == "error":
                    yield self._failed_reply(id_, event)
                else:
                    self.others.append(event)
                return
            name, call_id = call
        if observation == "null":
            self.others.append(event)
            return
        self._last = None
        if self._delegates and self._delegates[-1][0] == call_id:
            self._delegates.pop()
        code = _exit_code(event, extras)
        yield Result(
            id=id_,
            output=content(event.get("content")) or "",
            failed=observation in ("error", "user_rejected") or code not in (None, 0) or extras.get("error") is True,
            created_at=instant(event.get("timestamp")),
            data=extras or None,
            call_ids=[call_id] if call_id else [],
            name=name,
            health=time_flags(event.get("timestamp")),
            metadata=rest(event, _OBSERVATION_FIELDS),
        )

    def _failed_reply(self, id_: str, event: dict[str, Any]) -> Reply:
        """Return a failed reply for an error that is the result of no call."""
        return Reply(
            id=id_,
            content=None,
            error=text(event.get("content")) or text(event.get("message")) or "error",
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata=rest(event, ("id", "timestamp", "source", "content")),
        )

    def _set_status(self, state: object) -> None:
        if state in ("error", "rejected", "stopped"):
            self.status = "error" if state == "error" else "aborted"
        elif state in ("running", "finished", "awaiting_user_input"):
            self.status = None

    # --- The SDK ---

    def _system_prompt(self, id_: str, event: dict[str, Any]) -> Iterator[Entry]:
        prompt = event.get("system_prompt")
        metadata = rest(event, ("id", "timestamp", "source", "kind", "system_prompt"))
        yield self._text_entry(
            id_, "system", prompt.get("text") if isinstance(prompt, dict) else prompt, event, metadata
        )

    def _message(self, id_: str, event: dict[str, Any]) -> Iterator[Entry]:
        message = fields(event.get("llm_message"))
        metadata = {**rest(event, _MESSAGE_FIELDS), **rest(message, _LLM_FIELDS)}
        source = event.get("source") or ("agent" if message.get("role") == "assistant" else message.get("role"))
        if source != "agent":
            role = "user" if source == "user" else "system"
            yield self._text_entry(id_, role, _content_of(message.get("content")), event, metadata)
            return
        yield Reply(
            id=id_,
            content=_content_of(message.get("content")),
            reasoning=_reasoning(message),
            agent_name=text(event.get("sender")),
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata=metadata | rest({"thinking_blocks": _opaque_blocks(message)}, ()),
        )

    def _sdk_action(self, id_: str, event: dict[str, Any]) -> Iterator[Entry]:
        call = fields(event.get("tool_call"))
        args = call.get("arguments")
        if args is None:
            args = fields(call.get("function")).get("arguments")
        action = event.get("action")
        own = rest(action, ("kind",)) if isinstance(action, dict) else {}
        yield Reply(
            id=id_,
            content=_content_of(event.get("thought")),
            calls=[
                Call(
                    id=text(event.get("tool_call_id")) or text(call.get("id")),
                    name=text(event.get("tool_name")) or text(call.get("name")) or "",
                    args=own if args is None else args,
                    metadata=rest({"action": action, **{name: event.get(name) for name in _CALL_FIELDS}}, ()),
                )
            ],
            reasoning=_reasoning(event),
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata=rest(event, (*_ACTION_FIELDS, *_CALL_FIELDS, "tool_call", "action", "thinking_blocks"))
            | rest({"thinking_blocks": _opaque_blocks(event)}, ()),
        )

    def _sdk_result(self, id_: str, event: dict[str, Any]) -> Iterator[Entry]:
        call_id, observation = text(event.get("tool_call_id")), event.get("observation")
        observed = fields(observation)
        value = observation if isinstance(observation, str) else observed.get("content", observed.get("output"))
        reason = event.get("error") or event.get("rejection_reason")
        output, attachments = text_and_attachments(content(_split_images(value)))
        data = rest(observed, ("content", "output"))
        yield Result(
            id=id_,
            output=output or text(reason) or "",
            failed=event["kind"] != "ObservationEvent"
            or bool(observed.get("is_error"))
            or _exit_code(observed, fields(observed.get("metadata"))) not in (None, 0),
            created_at=instant(event.get("timestamp")),
            data=data if any(name != "kind" for name in data) else None,
            call_ids=[call_id] if call_id else [],
            name=text(event.get("tool_name")),
            attachments=attachments,
            health=time_flags(event.get("timestamp")),
            metadata=rest(event, _ANSWER_FIELDS),
        )

    def _sdk_error(self, id_: str, event: dict[str, Any]) -> Iterator[Entry]:
        yield Reply(
            id=id_,
            content=None,
            error=text(event.get("detail")) or text(event.get("code")) or "error",
            created_at=instant(event.get("timestamp")),
            health=time_flags(event.get("timestamp")),
            metadata=rest(event, ("id", "timestamp", "source", "kind", "detail")),
        )

    def _acp_call(self, id_: str, event: dict[str, Any]) -> Iterator[Entry]:
        """Read a call of an external agent; its events repeat as the call proceeds."""
        call_id = text(event.get("tool_call_id"))
        if call_id is None or call_id not in self._started:
            yield Reply(
                id=id_,
                content=None,
                calls=[
                    Call(
                        id=call_id,
                        name=text(event.get("title")) or "",
                        args=event.get("raw_input"),
                        metadata=rest({"tool_kind": event.get("tool_kind")}, ()),
                    )
                ],
                parent_call=text(event.get("parent_tool_call_id")),
                created_at=instant(event.get("timestamp")),
                health=time_flags(event.get("timestamp")),
            )
            self._started.add(call_id or "")
        if event.get("status") in ("completed", "failed") or event.get("is_error"):
            output = event.get("raw_output")
            yield Result(
                id=f"{id_}/result",
                output=output if output is not None else as_json(event.get("content")) if event.get("content") else "",
                failed=bool(event.get("is_error")) or event.get("status") == "failed",
                created_at=instant(event.get("timestamp")),
                data=event.get("content") or None,
                call_ids=[call_id] if call_id else [],
            )


_SDK = {
    "SystemPromptEvent": _Conversation._system_prompt,
    "MessageEvent": _Conversation._message,
    "ActionEvent": _Conversation._sdk_action,
    "ObservationEvent": _Conversation._sdk_result,
    "UserRejectObservation": _Conversation._sdk_result,
    "AgentErrorEvent": _Conversation._sdk_result,
    "ConversationErrorEvent": _Conversation._sdk_error,
    "ACPToolCallEvent": _Conversation._acp_call,
}


# --- Values ---------------------------------------------------------------------------------------------------------


def _other_fields(event: dict[str, Any]) -> dict[str, Any]:
    """Return the other fields of an action of the older generations, if its arguments are in `args`."""
    return rest(event, (*_EVENT_FIELDS, "action", "kind", "llm_message")) if isinstance(event.get("args"), dict) else {}


def _with_images(message: Any, args: dict[str, Any]) -> Any:
    images = [*items(args.get("image_urls")), *items(args.get("images_urls"))]
    if not images:
        return message
    parts = message if isinstance(message, list) else [{"type": "text", "text": text(message) or ""}]
    return [*parts, *_image_parts(images)]


def _split_images(parts: Any) -> Any:
    """Split image parts of the SDK, which hold several images, into one part for each image."""
    if not isinstance(parts, list):
        return parts
    return [
        single
        for part in parts
        for single in (
            _image_parts(part["image_urls"])
            if isinstance(part, dict) and part.get("type") == "image" and isinstance(part.get("image_urls"), list)
            else [part]
        )
    ]


def _image_parts(urls: list[Any]) -> list[Any]:
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls]


def _content_of(parts: Any) -> str | list[Any] | None:
    """Return the parts of a content, or its text if it has no other parts."""
    parts = _split_images(parts)
    if isinstance(parts, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        return "\n".join(part["text"] for part in parts)
    return content(parts)


def _reasoning(event: dict[str, Any]) -> str | None:
    reasoning = event.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        return reasoning
    thoughts = [fields(block).get("thinking") for block in items(event.get("thinking_blocks"))]
    return "\n\n".join(thought for thought in thoughts if isinstance(thought, str)) or None


def _opaque_blocks(event: dict[str, Any]) -> list[Any]:
    """Return the parts of thinking blocks for the provider only: signatures and redacted thinking."""
    blocks = [
        rest(block, ("thinking", "type")) if isinstance(block, dict) else block
        for block in items(event.get("thinking_blocks"))
    ]
    return [block for block in blocks if block]


def _exit_code(event: dict[str, Any], extras: dict[str, Any]) -> Any:
    places = (fields(extras.get("metadata")), extras, event)
    return next((code for place in places if isinstance(code := place.get("exit_code"), int)), None)
