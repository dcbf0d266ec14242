"""Runs of Eko (FellouAI/eko): what its callback was told, message by message, and the chains that it keeps of a task.

Callback messages, JSON lines or a list, of versions 2 to 4 (packages/eko-core/src/types), of its debugger branch
(`debug_...`), or wrapped as {taskId, type, ts, payload}. A task is a session, and its id the session's; the messages of
several tasks may be mixed. Of a 4.x chat the messages that belong to no task are a session of the chat's id.

* text, thinking, tool_streaming and tool_running repeat everything so far in each message: what counts is the one with
  `streamDone`, which may come twice.
* What an agent says between two `finish` is one reply: thinking, text, calls (`toolId` in 2.x and 3.x, `toolCallId` in
  4.x), files, and the usage that `finish` brings. A tool_use may come again with its params. The results follow.
* Agents that work at the same time interleave, and their calls may have the same ids: each node is read on its own, and
  its calls are told apart by it.
* workflow is the plan (its last version, its name the title); agent_start and agent_result are kept in the metadata,
  an error of an agent is also a reply that failed. What the user asked is known from `workflow.taskPrompt` or
  debug_task_start only; a task without it begins with the first reply.
* A reply that has not finished when the file ends is left out: it is taken over when the file has grown.

A chain is {taskPrompt, planRequest, planResult, agents: [{agent, tools: [{toolName, toolCallId, request, params,
toolResult}], agentRequest, agentResult}]}; `request` and `agentRequest` hold what the model was sent. Calls that one
message of the model asked for are one reply; agentResult is the last one.

Messages have no times, but for those of the debugger (`timestamp`, milliseconds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Any

from traces_app.normalize.json_values import as_json, fields, instant, items, rest, text
from traces_app.schema.records import SessionStatus
from traces_app.transcripts.entries import Call, Entry, Reply, Result, Said, Transcript
from traces_app.transcripts.files.documents import Document, Lines, Skip

NAME = "eko"

_AT_WORK = frozenset(
    {"text", "thinking", "file", "tool_streaming", "tool_use", "tool_running", "tool_result", "finish", "error", "raw"}
)
_TYPES = _AT_WORK | {"workflow", "workflow_confirm", "agent_start", "agent_result", "chat_start", "chat_end"}
_DEBUG = "debug_"
_WRAPPINGS = ("messages", "events", "callbacks")
_CHAIN = frozenset({"taskPrompt", "planRequest", "planResult"})
_PROMPT = "prompt"
"""The id of the entry that says what the user asked."""
_STOPPED: dict[object, SessionStatus] = {"done": "completed", "error": "error", "abort": "aborted"}
_MOST_HELD = 32 * 1024 * 1024
"""Characters of several tasks that are held at a time; one that says more is gone through again."""
# What every message says of where it belongs.
_FRAME = frozenset({"type", "streamType", "chatId", "taskId", "messageId", "agentName", "nodeId", "timestamp"})


def recognises(document: Document) -> bool:
    """Whether there are callback messages of Eko in it, or a chain."""
    if isinstance(document, Lines):
        head = document.head()
        return any(map(_is_message, head)) or any(_chain_of(value) is not None for value in head)
    if isinstance(document, dict) and _is_wrapping(document):
        return True
    found = document[:50] if isinstance(document, list) else [document]
    return any(_is_message(item) or _chain_of(item) is not None for item in found)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The tasks of a document that `recognises` accepts; what they leave out is told to `skip`."""
    readings: dict[str, Reading] = {}
    weights: Counter[str] = Counter()
    place = 0
    for where, value in _values(document):
        chain = _chain_of(value)
        if chain is not None:
            yield _chain_transcript(chain, value, where, place, skip)
            place += 1
            continue
        message = message_of(value)
        if message is None:
            skip(where or "(all)", "no callback message of Eko")
            continue
        # Read more than once: now for what the sessions are as a whole, and to tell what is left out.
        task = task_of(message)
        entries = readings.setdefault(task, Reading()).take(message, where, skip)
        weights[task] += sum(map(_weight, entries))
    for task, reading in readings.items():
        reading.end(skip)
        if not reading.said_anything:
            skip(f"task {task}", "nothing was said in it")
    said = [task for task, reading in readings.items() if reading.said_anything]
    for task, entries_of in _entries_by_task(document, said, weights):
        reading = readings[task]
        yield Transcript(
            entries=entries_of,
            place=place,
            external_id=task or None,
            title=text(fields(reading.workflow).get("name")),
            status=reading.status,
            workflow=reading.workflow,
            metadata=reading.metadata(),
        )
        place += 1


# --- Messages -----------------------------------------------------------------------------------------------------


def message_of(value: object) -> dict[str, Any] | None:
    """A callback message without its wrapping {taskId, type, ts, payload}; None if it is none."""
    if not _is_message(value):
        return None
    assert isinstance(value, dict), "what is no object is no message"
    payload = value.get("payload")
    if isinstance(payload, dict) and "ts" in value:
        own = {name: item for name, item in value.items() if name not in ("payload", "ts")}
        return {**payload, **own, "timestamp": value["ts"]}
    return value


def task_of(message: dict[str, Any]) -> str:
    """The task that a message belongs to, or the chat, where it is of no task."""
    return text(message.get("taskId")) or text(message.get("chatId")) or ""


@dataclass
class _Open:
    """What an agent has said since its last `finish`."""

    texts: dict[str, str] = field(default_factory=dict)
    """By stream, as are the thoughts."""
    thoughts: dict[str, str] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    unfinished: bool = False
    """Whether a stream has begun that is not done."""
    metadata: dict[str, Any] = field(default_factory=dict)
    began: datetime | None = None

    def holds_anything(self) -> bool:
        return bool(self.calls or self.files or any(self.texts.values()) or any(self.thoughts.values()))


@dataclass
class _Node:
    """One agent at its work."""

    name: str | None
    key: str
    open: _Open = field(default_factory=_Open)
    replies: int = 0
    results: int = 0
    last_text: str = ""
    durations: dict[str, float] = field(default_factory=dict)
    """Of calls that the debugger timed before their result came."""
    progress: dict[str, str] = field(default_factory=dict)


class Reading:
    """Callback messages of one task, turned into entries as they come."""

    def __init__(self) -> None:
        self.workflow: Any = None
        self.status: SessionStatus | None = None
        self.said_anything = False
        self._nodes: dict[str, _Node] = {}
        self._agents: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, Any] = {}
        self._asked = False

    def take(self, message: dict[str, Any], where: str, skip: Skip) -> list[Entry]:
        """What there is to say now that this message came; mostly nothing."""
        entries = list(self._take(message, where, skip))
        self.said_anything = self.said_anything or bool(entries)
        return entries

    def end(self, skip: Skip) -> None:
        """Tells what was begun and never finished."""
        for node in self._nodes.values():
            if node.open.holds_anything() or node.open.unfinished:
                skip(f"reply {node.replies} of {node.key or node.name}", "the file ends before it is finished")

    def metadata(self) -> dict[str, Any]:
        """What was learned of the task and has no field."""
        return {**self._facts, **({"agents": list(self._agents.values())} if self._agents else {})}

    def _take(self, message: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
        kind = str(message.get("type"))
        if chat := text(message.get("chatId")):
            self._facts["chatId"] = chat
        if kind.startswith(_DEBUG):
            yield from self._debugged(kind.removeprefix(_DEBUG), message)
        elif kind == "workflow":
            yield from self._planned(message.get("workflow"), message)
        elif kind in ("agent_start", "agent_result"):
            yield from self._agent(kind, message)
        elif kind == "chat_end":
            yield from self._closed(self._node(message), message, error=reason_of(message.get("error")))
            self._facts.update(rest(message, _FRAME))
        elif kind in _AT_WORK:
            yield from self._worked(kind, message, where, skip)
        elif kind not in ("chat_start", "workflow_confirm"):
            skip(where, f"unknown type {kind[:60]!r}")

    def _node(self, message: dict[str, Any]) -> _Node:
        name = text(message.get("agentName"))
        key = text(message.get("nodeId")) or text(message.get("messageId")) or name or ""
        return self._nodes.setdefault(key, _Node(name, key))

    # The task

    def _prompted(self, prompt: object, message: dict[str, Any]) -> Iterator[Entry]:
        """What the user asked; it is kept as a fact where the answer has begun already."""
        if not isinstance(prompt, str) or not prompt.strip() or self._asked:
            return
        self._asked = True
        if self.said_anything:
            self._facts["taskPrompt"] = prompt
        else:
            yield Said(id=_PROMPT, role="user", content=prompt, created_at=_time(message))

    def _planned(self, workflow: object, message: dict[str, Any]) -> Iterator[Entry]:
        if workflow is None:
            return
        self.workflow = workflow
        yield from self._prompted(fields(workflow).get("taskPrompt"), message)

    def _debugged(self, kind: str, message: dict[str, Any]) -> Iterator[Entry]:
        """The messages of the debugger repeat the others, but for what is taken here."""
        if kind == "task_start":
            yield from self._prompted(message.get("taskPrompt"), message)
            if message.get("contextParams"):
                self._facts["contextParams"] = message["contextParams"]
        elif kind == "task_finished":
            self._facts.update(rest(message, _FRAME))
            ended = _STOPPED.get(_hashable(message.get("stopReason")))
            self.status = ended or ("error" if message.get("success") is False else self.status)
        elif kind == "plan_finished":
            yield from self._planned(message.get("workflow"), message)
            if message.get("usage"):
                self._facts["plan_usage"] = message["usage"]
        elif kind == "workflow_finished" and message.get("finalResult") is not None:
            self._facts["result"] = message["finalResult"]
        elif kind == "tool_call_finished":
            id_, duration = call_id_of(message), message.get("duration")
            if id_ and isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < 1e12:
                self._node(message).durations[id_] = duration

    def _agent(self, kind: str, message: dict[str, Any]) -> Iterator[Entry]:
        node = self._node(message)
        agent = self._agents.setdefault(node.key, {"nodeId": node.key})
        agent.update(fields(message.get("agentNode")))
        if kind == "agent_start":
            return
        error = reason_of(message.get("error")) if "error" in message else None
        if message.get("result") is not None:
            agent["result"] = message["result"]
        if error:
            agent["error"] = error
            self.status = "error"
        yield from self._closed(node, message, error=error)
        result = text(message.get("result"))
        if result and not node.last_text:
            # Its text messages were not kept.
            yield self._reply(node, _Open(texts={"": result}), message)

    # One node

    def _worked(self, kind: str, message: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
        node = self._node(message)
        if kind == "tool_result":
            yield from self._closed(node, message)
            yield self._result(node, message, where, skip)
            return
        said = node.open
        said.began = said.began or _time(message)
        if kind in ("text", "thinking"):
            _stream(said, kind, message)
        elif kind == "tool_streaming":
            said.unfinished = True
        elif kind == "tool_use":
            _use(said, message)
        elif kind == "file":
            said.files.append({"type": "file", **rest(message, _FRAME)})
        elif kind == "raw":
            said.metadata.setdefault("raw", []).append(message.get("rawValue"))
        elif kind == "tool_running":
            node.progress[call_id_of(message)] = text(message.get("text")) or ""
        else:
            error = reason_of(message.get("error")) if kind == "error" else None
            yield from self._closed(node, message, error=error, usage=fields(message.get("usage")))

    def _closed(
        self, node: _Node, message: dict[str, Any], *, error: str | None = None, usage: dict[str, Any] | None = None
    ) -> Iterator[Entry]:
        """The reply of a node as far as it was said; nothing where nothing was said and nothing failed."""
        said, node.open = node.open, _Open()
        if usage is not None:
            said.metadata.update(rest(message, _FRAME | {"usage", "error"}))
        if said.holds_anything() or error or usage:
            yield self._reply(node, said, message, error=error, usage=usage)

    def _reply(
        self,
        node: _Node,
        said: _Open,
        message: dict[str, Any],
        *,
        error: str | None = None,
        usage: dict[str, Any] | None = None,
    ) -> Reply:
        spoken = "\n\n".join(part for part in said.texts.values() if part)
        node.last_text = spoken or node.last_text
        node.replies += 1
        parts = [{"type": "text", "text": spoken}] if spoken else []
        return Reply(
            id=f"{node.key}:{node.replies - 1}",
            content=[*parts, *said.files] if said.files else spoken or None,
            calls=list(said.calls.values()),
            reasoning="\n\n".join(part for part in said.thoughts.values() if part) or None,
            agent_name=node.name,
            usage=usage or None,
            created_at=said.began or _time(message),
            error=error,
            scope=node.key,
            metadata=said.metadata,
        )

    def _result(self, node: _Node, message: dict[str, Any], where: str, skip: Skip) -> Result:
        id_, answer = call_id_of(message), message.get("toolResult")
        if answer is not None and not isinstance(answer, dict):
            skip(f"{where}.toolResult", "not an object; it is kept as the output")
        node.results += 1
        progress = node.progress.pop(id_, "")
        return result_of(
            f"{node.key}:result {node.results - 1}",
            answer,
            scope=node.key,
            call_id=id_,
            name=text(message.get("toolName")),
            created_at=_time(message),
            duration=node.durations.pop(id_, None),
            metadata={"progress": progress} if progress else {},
        )


def _stream(said: _Open, kind: str, message: dict[str, Any]) -> None:
    streams = said.texts if kind == "text" else said.thoughts
    if message.get("streamDone") is False:
        said.unfinished = True
        return
    said.unfinished = False
    streams[text(message.get("streamId")) or ""] = text(message.get("text")) or ""


def _use(said: _Open, message: dict[str, Any]) -> None:
    said.unfinished = False
    id_ = call_id_of(message)
    known = said.calls.get(id_) if id_ else None
    args = message.get("params")
    if known is not None and known.args and not args:
        args = known.args
    said.calls[id_ or f"#{len(said.calls)}"] = Call(
        id=id_ or None,
        name=text(message.get("toolName")) or "",
        args=args,
        started_at=_time(message),
        metadata=rest(message, _FRAME | {"toolId", "toolCallId", "toolName", "params"}),
    )


def result_of(id_: str, answer: object, *, call_id: str, metadata: dict[str, Any], **known: Any) -> Result:
    """What a tool of Eko answered: {content: [parts as of MCP], isError, extInfo}."""
    if not isinstance(answer, dict) or "content" not in answer:
        # Against the contract of a tool: what it returned is the output, whatever it is.
        return Result(
            id=id_, output=answer, failed=None, call_ids=[call_id] if call_id else (), metadata=metadata, **known
        )
    content = answer.get("content")
    parts = items(content)
    only = parts[0] if len(parts) == 1 and isinstance(parts[0], dict) else {}
    failed = answer.get("isError")
    return Result(
        id=id_,
        output=only["text"] if only.get("type") == "text" and isinstance(only.get("text"), str) else content,
        failed=failed if isinstance(failed, bool) else None,
        data=answer.get("extInfo"),
        call_ids=[call_id] if call_id else (),
        metadata={**metadata, **rest(answer, ("content", "isError", "extInfo"))},
        **known,
    )


def call_id_of(message: dict[str, Any]) -> str:
    return text(message.get("toolCallId")) or text(message.get("toolId")) or ""


def _time(message: dict[str, Any]) -> datetime | None:
    return instant(message.get("timestamp"))


def reason_of(error: object) -> str | None:
    """Why something failed. JSON makes {} of an Error, so there may be nothing to tell but that it did."""
    if error is None or error == "":
        return None
    if isinstance(error, dict):
        return text(error.get("message")) or (as_json(error) if error else "an error without a text")
    return text(error)


# --- Documents ----------------------------------------------------------------------------------------------------


def _values(document: Document) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Lines):
        yield from ((f"line {line.number}", line.value) for line in document)
        return
    listed, path = (document, "") if isinstance(document, list) else (None, "")
    if isinstance(document, dict) and (key := _is_wrapping(document)):
        listed, path = document[key], key
    if listed is None:
        yield "", document
    else:
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(listed))


def _entries_by_task(
    document: Document, tasks: list[str], weights: Counter[str]
) -> Iterator[tuple[str, Callable[[], Iterator[Entry]]]]:
    """The tasks with their entries: of as many at a time as may be held, so that a file of many is read a few times."""
    group: list[str] = []
    for task, following in zip_longest(tasks, tasks[1:]):
        group.append(task)
        if following is not None and sum(weights[one] for one in (*group, following)) <= _MOST_HELD:
            continue
        if weights[group[0]] > _MOST_HELD:
            yield task, partial(_task_entries, document, [task])
        else:
            held: dict[str, list[Entry]] = {one: [] for one in group}
            for one, entry in _read_again(document, group):
                held[one].append(entry)
            for one in group:
                yield one, partial(iter, held[one])
        group = []


def _task_entries(document: Document, tasks: list[str]) -> Iterator[Entry]:
    for _task, entry in _read_again(document, tasks):
        yield entry


def _read_again(document: Document, tasks: list[str]) -> Iterator[tuple[str, Entry]]:
    readings = {task: Reading() for task in tasks}
    for where, value in _values(document):
        message = message_of(value)
        reading = readings.get(task_of(message)) if message is not None else None
        if message is not None and reading is not None:
            for entry in reading.take(message, where, _told):
                yield task_of(message), entry


def _weight(entry: Entry) -> int:
    """Characters, about."""
    said = [entry.output] if isinstance(entry, Result) else [entry.content]
    if isinstance(entry, Reply):
        said += [entry.reasoning, *(call.args for call in entry.calls)]
    return 200 + sum(len(one) if isinstance(one, str) else len(as_json(one)) for one in said)


def _told(_where: str, _why: str) -> None:
    """What is left out was told when the document was read first."""


def _is_wrapping(document: dict[str, Any]) -> str | None:
    """The key under which the object holds callback messages."""
    return next((key for key in _WRAPPINGS if any(map(_is_message, items(document.get(key))[:50]))), None)


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] not in _TYPES and not value["type"].startswith(_DEBUG):
        # An unknown type in the dress of this format is one of its messages; a document of nothing else is not of it.
        return isinstance(value.get("taskId"), str) and isinstance(value.get("agentName"), str) and "nodeId" in value
    if value.get("streamType") in ("agent", "chat") and "chatId" in value:
        return True
    return isinstance(value.get("taskId"), str) and any(
        key in value for key in ("agentName", "nodeId", "workflow", "payload", "taskPrompt", "stopReason")
    )


def _hashable(value: object) -> object:
    return value if isinstance(value, str) else None


# --- Chains -------------------------------------------------------------------------------------------------------


def _chain_of(value: object) -> dict[str, Any] | None:
    """A chain, bare or within the context of its task."""
    for found in (value, value.get("chain") if isinstance(value, dict) else None):
        if isinstance(found, dict) and isinstance(found.get("agents"), list) and not _CHAIN.isdisjoint(found):
            agents = [agent for agent in found["agents"] if isinstance(agent, dict)]
            if all("agent" in agent or "tools" in agent for agent in agents):
                return found
    return None


def _chain_transcript(chain: dict[str, Any], value: dict[str, Any], where: str, place: int, skip: Skip) -> Transcript:
    entries = list(_chain_entries(chain, where, skip))
    plan = text(chain.get("planResult"))
    agents = [link for link in chain["agents"] if isinstance(link, dict)]
    around = rest(value, ("chain", "taskId", "workflow")) if value is not chain else {}
    workflow = value.get("workflow") if value is not chain else None
    if workflow is None and (plan or agents):
        workflow = {"xml": plan, "agents": [link.get("agent") for link in agents]}
        workflow |= {name: found for name in ("name", "thought") if (found := _between(plan or "", name))}
    return Transcript(
        entries=partial(iter, entries),
        place=place,
        external_id=text(value.get("taskId")) or _task_of_agents(agents),
        title=text(fields(workflow).get("name")),
        status="error" if any(fields(link.get("agent")).get("status") == "error" for link in agents) else None,
        workflow=workflow,
        metadata={
            **around,
            **rest(chain, ("agents", "taskPrompt", "planResult")),
            "agents": [_agent_facts(link) for link in agents],
        },
    )


def _chain_entries(chain: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
    if prompt := text(chain.get("taskPrompt")):
        yield Said(id=_PROMPT, role="user", content=prompt)
    for index, link in enumerate(chain["agents"]):
        path = f"{where}.agents[{index}]".lstrip(".")
        if not isinstance(link, dict):
            skip(path, "not an object")
            continue
        agent = fields(link.get("agent"))
        key = text(agent.get("id")) or str(index)
        yield from _link_entries(link, key, text(agent.get("name")), path, skip)


def _link_entries(link: dict[str, Any], key: str, name: str | None, path: str, skip: Skip) -> Iterator[Entry]:
    replies = results = 0
    last = ""
    tools = items(link.get("tools"))
    for parts, uses in _asked_together(tools, path, skip):
        last = _joined(parts, "text") or ""
        yield Reply(
            id=f"{key}:{replies}",
            content=last or None,
            reasoning=_joined(parts, "reasoning"),
            agent_name=name,
            scope=key,
            calls=_chain_calls(parts, uses),
        )
        replies += 1
        for use in uses:
            if use.get("toolResult") is not None:
                yield result_of(
                    f"{key}:result {results}",
                    use["toolResult"],
                    scope=key,
                    call_id=call_id_of(use),
                    name=text(use.get("toolName")),
                    metadata={},
                )
                results += 1
    result = text(link.get("agentResult"))
    if result and (result != last or not tools):
        yield Reply(id=f"{key}:{replies}", content=result, agent_name=name, scope=key)


def _asked_together(
    tools: list[Any], path: str, skip: Skip
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The parts of each message of the model that asked for tools, and the tools that were used for it."""
    waiting: set[str] = set()
    uses: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for index, use in enumerate(tools):
        if not isinstance(use, dict):
            skip(f"{path}.tools[{index}]", "not an object")
            continue
        id_ = call_id_of(use)
        if not uses or id_ not in waiting:
            if uses:
                yield parts, uses
            parts, uses = _asking(use, id_), []
            waiting = {call_id_of(part) for part in parts if part.get("type") == "tool-call"}
        waiting.discard(id_)
        uses.append(use)
    if uses:
        yield parts, uses


def _asking(use: dict[str, Any], id_: str) -> list[dict[str, Any]]:
    """The parts of the message that asked for this call: the last one of the request that the tool was given along."""
    for message in reversed(items(fields(use.get("request")).get("messages"))):
        parts = [part for part in items(fields(message).get("content")) if isinstance(part, dict)]
        if fields(message).get("role") == "assistant" and any(
            part.get("type") == "tool-call" and call_id_of(part) == id_ for part in parts
        ):
            return parts
    return []


def _joined(parts: Iterable[dict[str, Any]], kind: str) -> str | None:
    found = [part["text"] for part in parts if part.get("type") == kind and isinstance(part.get("text"), str)]
    return "\n\n".join(filter(None, found)) or None


def _chain_calls(parts: list[dict[str, Any]], uses: list[dict[str, Any]]) -> list[Call]:
    """The calls that were asked for, those that were not made yet among them."""
    asked = [part for part in parts if part.get("type") == "tool-call"]
    made = {call_id_of(use): use for use in uses}
    known = {call_id_of(part) for part in asked}
    # As it was asked for: tools are given the same object, and one that changes it changes `params`.
    return [
        Call(
            id=call_id_of(part) or None,
            name=text(part.get("toolName")) or "",
            args=next((part[name] for name in ("input", "args") if name in part), None)
            or fields(made.get(call_id_of(part))).get("params"),
        )
        for part in asked
    ] + [
        Call(id=call_id_of(use) or None, name=text(use.get("toolName")) or "", args=use.get("params"))
        for use in uses
        if call_id_of(use) not in known
    ]


def _agent_facts(link: dict[str, Any]) -> dict[str, Any]:
    """What is known of an agent beside its replies: how it was asked, and with which tools. Once, not per call."""
    request = fields(link.get("agentRequest"))
    messages = [message for message in items(request.get("messages")) if isinstance(message, dict)]
    asked = {
        role: next((message.get("content") for message in messages if message.get("role") == role), None)
        for role in ("system", "user")
    }
    facts = {**rest(link, ("tools", "agent", "agentRequest", "agentResult")), **fields(link.get("agent"))}
    return {**facts, **rest(asked, ()), "request": rest(request, ("messages", "abortSignal"))}


def _task_of_agents(agents: list[dict[str, Any]]) -> str | None:
    """The id of the task: that of its agents is it, a hyphen and a number."""
    for link in agents:
        task, _hyphen, number = (text(fields(link.get("agent")).get("id")) or "").rpartition("-")
        if task and number.isdecimal():
            return task
    return None


def _between(xml: str, name: str) -> str | None:
    """The text of the first element of this name; the plan is what a model wrote, and need not be XML."""
    _before, opened, after = xml.partition(f"<{name}>")
    found, closed, _rest = after.partition(f"</{name}>")
    return found.strip() if opened and closed else None
