"""The parts of a recorded run that can answer a new one: the results of its tools and the replies of its models.

recorded = Recorded.load("failure.jsonl")      # written by JsonLinesSink, or by Recorded.save
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tracesite_sdk.recorder.capture.entries import thaw
from tracesite_sdk.recorder.delivery.privacy import Privacy, without_secrets

FORMAT = "tracesite-cassette-1"
_BEGINNING = b'{\n "format": "%s"' % FORMAT.encode()


class Unrecorded(LookupError):
    """A call or request to which the recorded run has no answer."""


class RecordedError(RuntimeError):
    """The recorded error of a tool whose exception is not one of Python's own."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One recorded call of a tool."""

    tool: str
    args: Any
    number: int
    """Nanoseconds since 1970, UTC."""
    result: Any = None
    error: str | None = None
    is_cut: bool = False
    """Whether the result is not whole."""
    id: str = ""
    parent: str | None = None
    """The id of the call that made this one."""

    def answer(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            name, _, text = self.error.partition(": ")
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                raise kind(text)
            raise RecordedError(self.error)
        if self.is_cut:
            raise Unrecorded(f"The recorded result of {described(self.tool, self.args)} is not whole: it was cut.")
        # A copy, because the agent may change it.
        return thaw(self.result)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One recorded reply of a model."""

    number: int
    model: str | None = None
    request: Any = None
    text: str | None = None
    reasoning: str | None = None
    usage: Mapping[str, Any] | None = None
    error: str | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    """The calls of its step: `id` (the model's), `name` and `args`."""
    inside: Sequence[str] = ()
    """The ids of calls during which the model was asked, as by an agent that a tool runs."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The calls and replies of a run, in their order."""

    calls: Sequence[Call]
    replies: Sequence[Reply]
    prompts: Sequence[str] = ()
    """The user's prompts."""

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]], session_id: str | None = None) -> Recorded:
        """Read events in the format of POST /events/: those of one session, or all."""
        calls: dict[str, dict[str, Any]] = {}
        replies: dict[str, dict[str, Any]] = {}
        inside: dict[str, list[Mapping[str, Any]]] = {}
        prompts: list[tuple[int, str]] = []
        answers: dict[str, str] = {}
        steps: dict[str, list[str]] = {}
        ends: dict[str, int] = {}
        for event in events:
            if session_id is not None and event["session_id"] != session_id:
                continue
            data = event["data"]
            if event["type"].startswith("tool_call_") and "uuid" in data:
                name = data["uuid"]
                call = calls.setdefault(name, {"id": name, "number": event["number"], "tool": "", "args": {}})
                if event["type"] != "tool_call_start":
                    ends[name] = event["number"]
                call |= {key: data[name] for key, name in _CALL.items() if data.get(name) is not None}
                if any(cut["path"].startswith("data.result") for cut in data.get("truncated", ())):
                    call["is_cut"] = True
                if "step" in data and event["type"] == "tool_call_start":
                    requested = {"id": data.get("call_id"), "name": call["tool"], "args": call["args"]}
                    inside.setdefault(data["step"], []).append(requested)
            elif event["type"].startswith("llm_request_") and "step" in data:
                if data["step"] not in replies:
                    steps.setdefault(event["message_id"], []).append(data["step"])
                reply = replies.setdefault(data["step"], {"number": event["number"]})
                reply |= {key: data[name] for key, name in _REPLY.items() if data.get(name) is not None}
            elif event["type"] == "workflow_execute_start" and isinstance(data.get("prompt"), str):
                prompts.append((event["number"], data["prompt"]))
            elif event["type"] == "workflow_execute_complete" and isinstance(data.get("result"), str):
                answers[event["message_id"]] = data["result"]
        for message, answer in answers.items():
            # The reply that is the answer of its message is recorded there.
            last = steps.get(message, [""])[-1]
            if last in replies and last not in inside and not replies[last].keys() & {"text", "error"}:
                replies[last]["text"] = answer
        for reply in replies.values():
            reply["inside"] = [id_ for id_, end in ends.items() if calls[id_]["number"] < reply["number"] < end]
        return cls(
            prompts=[prompt for _number, prompt in sorted(prompts)],
            calls=sorted((Call(**call) for call in calls.values()), key=lambda call: call.number),
            replies=sorted(
                (Reply(**reply, calls=tuple(inside.get(step, ()))) for step, reply in replies.items()),
                key=lambda reply: reply.number,
            ),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], session_id: str | None = None) -> Recorded:
        """Read a file of events, one a line, or one that `save` wrote. Raises OSError, and ValueError for another file."""
        content = Path(path).read_bytes()
        try:
            if content.startswith(_BEGINNING):
                return msgspec.json.decode(content, type=cls)
            events = msgspec.json.Decoder(_Event).decode_lines(content)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"{path}: expected events, one a line, or a file of Recorded.save: {error}") from error
        return cls.of(map(msgspec.structs.asdict, events), session_id)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for `load`."""
        Path(path).write_bytes(self.encoded())

    def encoded(self) -> bytes:
        """Return the content of such a file, in lines that a version control can compare."""
        fields = {"format": FORMAT, "prompts": self.prompts, "replies": self.replies, "calls": self.calls}
        return msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n"


class _Event(msgspec.Struct):
    session_id: str
    message_id: str
    type: str
    number: int
    data: dict[str, Any]


_CALL = {"parent": "parent", "tool": "name", "args": "args", "result": "result", "error": "error"}
_REPLY = {
    "model": "model",
    "request": "request",
    "text": "thought",
    "reasoning": "reasoning",
    "usage": "usage",
    "error": "error",
}


class Results:
    """Answers calls by tool, arguments and occurrence: the second equal call gets the second recorded result."""

    def __init__(self, calls: Iterable[Call], privacy: Privacy) -> None:
        self._privacy = privacy
        self._left: dict[tuple[str, str], list[Call]] = {}
        self._tools: dict[str, list[Any]] = {}
        for call in calls:
            self._left.setdefault((call.tool, _canonical(call.args)), []).append(call)
            self._tools.setdefault(call.tool, []).append(call.args)

    def clean(self, args: Any) -> Any:
        """Return arguments as they are recorded: as JSON values without secrets."""
        return without_secrets(thaw(args), self._privacy, "")[0]

    def take(self, tool: str, args: Any) -> Call:
        """Return the next recorded call with these arguments, from `clean`; no later call gets it. Raises Unrecorded."""
        left = self._left.get((tool, _canonical(args)))
        if left:
            return left.pop(0)
        called = described(tool, args)
        if left is not None:
            raise Unrecorded(f"{called} was recorded, but less often than it is called now.")
        recorded = self._tools.get(tool)
        if recorded is None:
            raise Unrecorded(f"{called} was not recorded: the recorded run did not call {tool!r}.")
        raise Unrecorded(
            f"{called} was not recorded. The recorded run called: "
            + "; ".join(described(tool, args) for args in recorded[:_MOST_NAMED])
        )

    def drop_inside(self, call: Call) -> None:
        """Expect no calls that this one made, because it does not run."""
        dropped = [inner for inner in self.left() if call.id and inner.parent == call.id]
        for inner in dropped:
            self._left[inner.tool, _canonical(inner.args)].remove(inner)
            self.drop_inside(inner)

    def left(self) -> list[Call]:
        """Return the calls that were not taken, in their order."""
        return sorted((call for calls in self._left.values() for call in calls), key=lambda call: call.number)


_MOST_NAMED = 5
_MOST_SHOWN = 300


def described(tool: str, args: Any) -> str:
    """Return a call as people read it: `search({"q": "weather"})`."""
    text = _canonical(args)
    return f"{tool}({text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '…'})"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
