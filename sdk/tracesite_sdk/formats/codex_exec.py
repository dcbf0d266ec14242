"""Read what `codex exec --json` prints: one event a line, also with other output between them.

Each `thread.started` begins a run, which is a session with the id of the thread. A resumed thread has the same id and numbers its
items anew, so its run is a session of its own, and so is the rollout of the thread (codex.py).

* An `agent_message` is a reply, with the `reasoning` before it and the calls after it up to a result. The prompts are not in the
  stream.
* A command, a change of files, an MCP call, a call to another agent and a web search are one item each, whose last state counts:
  `item.started` is the call and `item.completed` the result. It has failed with the status `failed` or `declined`, or
  with another exit code than 0.
* The `usage` of a turn is that of all its requests; the last reply of the turn has it.
* `turn.failed` is a failed reply. Errors that are not fatal (`error`) are system messages. The last list of tasks
  (`todo_list`) is metadata of the session.

There are no times and no models. A run is held in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import content, fields, items, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, numbered_values
from tracesite_sdk.transcripts.entries import EMPTY_CONVERSATION, Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "codex_exec"

_ITEM_EVENTS = ("item.started", "item.updated", "item.completed")
_CALLS = ("command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search")
_FAILED = ("failed", "declined")
_ITEM_FIELDS = (
    *("id", "type", "status", "command", "aggregated_output", "changes", "server", "tool", "arguments", "result", "error"),
    *("prompt", "receiver_thread_ids", "agents_states", "query", "action"),
)  # fmt: skip


def recognises(document: Document) -> bool:
    """Return whether one of the first values begins a run."""
    return any(map(_is_start, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the runs of a document that `recognises` accepts; report omissions to `skip`."""
    run: _Run | None = None
    left_out: Counter[str] = Counter()
    for where, event in numbered_values(document):
        if not isinstance(event, dict):
            skip(where, "not an object")
        elif _is_start(event):
            if run is not None:
                yield from run.transcripts(skip)
            run = _Run(thread=event["thread_id"], place=0 if run is None else run.place + 1)
        elif run is None:
            skip(where, "before the start of a run")
        elif (unread := run.read(event)) is not None:
            left_out[unread] += 1
    if run is not None:
        yield from run.transcripts(skip)
    for kind, count in left_out.items():
        skip("(all)", f"not part of the conversation, {kind}: {count} line{'s' * (count > 1)}")


def _is_start(value: Any) -> bool:
    return fields(value).get("type") == "thread.started" and isinstance(value.get("thread_id"), str)


@dataclass(eq=False)
class _Run:
    thread: str
    place: int
    entries: list[Entry] = field(default_factory=list)
    tasks: list[Any] = field(default_factory=list)
    _open: Reply | None = None
    """The reply that may get more calls, or the tokens of the turn."""
    _calls: list[Call] = field(default_factory=list)
    """Its calls."""
    _thoughts: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    """The items whose call, or text, is read."""
    _completed: set[str] = field(default_factory=set)
    _count: int = 0

    def transcripts(self, skip: Skip) -> Iterator[Transcript]:
        self._close()
        if not self.entries:
            skip(f"thread {self.thread}", EMPTY_CONVERSATION)
            return
        yield Transcript(
            entries=partial(iter, self.entries),
            place=self.place,
            external_id=self.thread,
            metadata=rest({"todo_list": self.tasks}, ()),
        )

    def read(self, event: dict[str, Any]) -> str | None:
        """Read an event; return its kind if it is left out."""
        self._count += 1
        own, kind = f"#{self._count}", text(event.get("type")) or "no type"
        if kind in _ITEM_EVENTS:
            item = fields(event.get("item"))
            return self._read_item(text(item.get("id")) or own, item, is_completed=kind == "item.completed")
        if kind == "turn.completed":
            usage = fields(event.get("usage"))
            if usage:
                self._open = replace(self._open or Reply(id=own, content=None, is_request=True), usage=usage)
            self._close()
        elif kind == "turn.failed":
            self._close()
            error = text(fields(event.get("error")).get("message")) or "turn failed"
            self.entries.append(Reply(id=own, content=None, error=error))
        elif kind == "error":
            self._note(own, event)
        elif kind != "turn.started":
            return kind
        return None

    def _read_item(self, own: str, item: dict[str, Any], *, is_completed: bool) -> str | None:
        kind = text(item.get("type")) or "an item without a type"
        if kind in _CALLS:
            if own not in self._known:
                self._add_call(own, _call(own, kind, item))
            if is_completed and own not in self._completed:
                self._completed.add(own)
                self._close()
                self.entries.append(_result(own, kind, item))
        elif kind == "todo_list":
            self.tasks = items(item.get("items")) or self.tasks
        elif kind not in ("agent_message", "reasoning", "error"):
            return f"item {kind}"
        elif is_completed and own not in self._known:
            self._known.add(own)
            if kind == "agent_message":
                self._close()
                self._open = self._reply(own, text(item.get("text")))
            elif kind == "reasoning":
                self._thoughts += filter(None, [text(item.get("text"))])
            else:
                self._note(own, item)
        return None

    def _reply(self, own: str, said: str | None) -> Reply:
        thoughts, self._thoughts = self._thoughts, []
        return Reply(id=own, content=said, reasoning="\n\n".join(thoughts) or None, is_request=True)

    def _add_call(self, own: str, call: Call) -> None:
        self._known.add(own)
        if self._open is None or self._thoughts:
            self._close()
            self._open = self._reply(own, None)
        self._calls.append(call)

    def _close(self) -> None:
        if self._open is not None:
            self.entries.append(replace(self._open, calls=self._calls))
            self._open, self._calls = None, []

    def _note(self, own: str, about: dict[str, Any]) -> None:
        self._close()
        said = text(about.get("message"))
        self.entries.append(Prompt(id=own, role="system", content=said, is_aside=True, metadata={"type": "error"}))


def _call(own: str, kind: str, item: dict[str, Any]) -> Call:
    """Return the call of an item, under the name that it has in a rollout."""
    args: Any
    if kind == "command_execution":
        name, args = "exec_command", {"command": item.get("command")}
    elif kind == "file_change":
        name, args = "apply_patch", {"changes": item.get("changes")}
    elif kind == "mcp_tool_call":
        name, args = f"mcp__{text(item.get('server')) or ''}__{text(item.get('tool')) or ''}", item.get("arguments")
    elif kind == "collab_tool_call":
        name, args = text(item.get("tool")) or kind, rest(item, set(item) - {"prompt", "receiver_thread_ids"})
    else:
        name, args = kind, rest(item, set(item) - {"query", "action"})
    return Call(id=own, name=name, args=args)


def _result(own: str, kind: str, item: dict[str, Any]) -> Result:
    status, code, error = text(item.get("status")), item.get("exit_code"), item.get("error")
    answer = fields(item.get("result"))
    output, attachments = text_and_attachments(content(answer.get("content")))
    if kind == "command_execution":
        output = text(item.get("aggregated_output")) or ""
    return Result(
        id=f"{own}#result",
        output=output,
        failed=status in _FAILED or (isinstance(code, int) and code != 0),
        error=text(fields(error).get("message")) if isinstance(error, dict) else text(error),
        data=answer.get("structured_content") or item.get("agents_states") or None,
        call_ids=[own],
        attachments=attachments,
        metadata={**rest(item, _ITEM_FIELDS), **({"status": status} if status == "declined" else {})},
    )
