"""Read runs of Eko (FellouAI/eko): callback messages, and the chain that Eko keeps of a task.

Callback messages come as JSON lines or a list, of versions 2 to 4 (packages/eko-core/src/types), of the debugger branch
(`debug_...`), or wrapped as {taskId, type, ts, payload}. A task is a session with the task's id; messages of several
tasks may be mixed. The messages of a 4.x chat that belong to no task are a session with the chat's id.

* Each message of text, thinking, tool_streaming and tool_running repeats the stream so far. Only the one with
  `streamDone` counts; it may come twice.
* The messages of an agent between two `finish` are one reply: thinking, text, calls (`toolId` in 2.x and 3.x,
  `toolCallId` in 4.x), files, and the usage in `finish`. A tool_use may come again with its params. The results follow.
* Messages of parallel agents interleave, and their calls may have the same ids. So each node is read by itself, and a
  call id is unique within its node only.
* workflow is the plan: its last version counts, its name is the title. agent_start and agent_result are kept in the
  metadata; an error of an agent is also a failed reply. Only `workflow.taskPrompt` and debug_task_start hold the
  prompt of the user; a task without them begins with the first reply.
* A reply that is unfinished at the end of the file is left out until the file has grown.

A chain is {taskPrompt, planRequest, planResult, agents: [{agent, tools: [{toolName, toolCallId, request, params,
toolResult}], agentRequest, agentResult}]}; `request` and `agentRequest` hold the input of the model. The calls requested
by one message of the model are one reply; agentResult is the last reply.

Only messages of the debugger have times (`timestamp`, milliseconds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Any

from tracesite_sdk.normalize.json_values import as_json, fields, instant, items, rest, text
from tracesite_sdk.records import SessionStatus
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, numbered_values, skip_silently
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript

NAME = "eko"

_STEP_TYPES = frozenset(
    {"text", "thinking", "file", "tool_streaming", "tool_use", "tool_running", "tool_result", "finish", "error", "raw"}
)
_TYPES = _STEP_TYPES | {"workflow", "workflow_confirm", "agent_start", "agent_result", "chat_start", "chat_end"}
_DEBUG = "debug_"
_WRAPPINGS = ("messages", "events", "callbacks")
_CHAIN = frozenset({"taskPrompt", "planRequest", "planResult"})
_PROMPT = "prompt"
"""The id of the entry with the prompt of the user."""
_STOPPED: dict[object, SessionStatus] = {"done": "completed", "error": "error", "abort": "aborted"}
_MAX_HELD_CHARACTERS = 32 * 1024 * 1024
"""Characters of several tasks that are held at a time; a larger task is read again from the file."""
# Fields in which a message names its task, agent and node.
_FRAME = frozenset({"type", "streamType", "chatId", "taskId", "messageId", "agentName", "nodeId", "timestamp"})


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a callback message of Eko or a chain."""
    if isinstance(document, dict) and _wrapping_key(document):
        return True
    return any(_is_message(value) or _chain_of(value) is not None for value in first_values(document, 50))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the tasks of a document that `recognises` accepts; report omissions to `skip`."""
    readers: dict[str, _TaskReader] = {}
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
            skip(where or "(all)", "not an Eko callback message")
            continue
        # The first reading collects the facts about each session and reports what is left out.
        task = task_of(message)
        entries = readers.setdefault(task, _TaskReader()).read(message, where, skip)
        weights[task] += sum(map(_characters, entries))
    for task, reader in readers.items():
        reader.end(skip)
        if not reader.has_entries:
            skip(f"task {task}", "no messages")
    tasks = [task for task, reader in readers.items() if reader.has_entries]
    for task, entries_of in _entries_by_task(document, tasks, weights):
        reader = readers[task]
        yield Transcript(
            entries=entries_of,
            place=place,
            external_id=task or None,
            title=text(fields(reader.workflow).get("name")),
            status=reader.status,
            workflow=reader.workflow,
            metadata=reader.metadata(),
        )
        place += 1


# --- Messages -----------------------------------------------------------------------------------------------------


def message_of(value: object) -> dict[str, Any] | None:
    """Return a callback message without its wrapping {taskId, type, ts, payload}; None for any other value."""
    if not _is_message(value):
        return None
    assert isinstance(value, dict), "a message is an object"
    payload = value.get("payload")
    if isinstance(payload, dict) and "ts" in value:
        own = {name: item for name, item in value.items() if name not in ("payload", "ts")}
        return {**payload, **own, "timestamp": value["ts"]}
    return value


def task_of(message: dict[str, Any]) -> str:
    """Return the id of the task, else of the chat, of a message."""
    return text(message.get("taskId")) or text(message.get("chatId")) or ""


@dataclass
class _Open:
    """The reply that an agent is making since its last `finish`."""

    texts: dict[str, str] = field(default_factory=dict)
    """Texts by stream, as are the thoughts."""
    thoughts: dict[str, str] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    unfinished: bool = False
    """True while a stream has begun and is not done."""
    metadata: dict[str, Any] = field(default_factory=dict)
    began: datetime | None = None

    def has_content(self) -> bool:
        return bool(self.calls or self.files or any(self.texts.values()) or any(self.thoughts.values()))


@dataclass
class _Node:
    """One agent of a task."""

    name: str | None
    key: str
    open: _Open = field(default_factory=_Open)
    replies: int = 0
    results: int = 0
    last_text: str = ""
    durations: dict[str, float] = field(default_factory=dict)
    """Durations from the debugger, by call id, of calls whose result has not come yet."""
    progress: dict[str, str] = field(default_factory=dict)


class _TaskReader:
    """Turns the callback messages of one task into entries as they come."""

    def __init__(self) -> None:
        self.workflow: Any = None
        self.status: SessionStatus | None = None
        self.has_entries = False
        self._nodes: dict[str, _Node] = {}
        self._agents: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, Any] = {}
        self._has_prompt = False

    def read(self, message: dict[str, Any], where: str, skip: Skip) -> list[Entry]:
        """Return the entries that this message completes; most messages complete none."""
        entries = list(self._read(message, where, skip))
        self.has_entries = self.has_entries or bool(entries)
        return entries

    def end(self, skip: Skip) -> None:
        """Report the replies that are unfinished."""
        for node in self._nodes.values():
            if node.open.has_content() or node.open.unfinished:
                skip(f"reply {node.replies} of {node.key or node.name}", "incomplete: the file ends")

    def metadata(self) -> dict[str, Any]:
        """Return the facts about the task that have no field of their own."""
        return {**self._facts, **({"agents": list(self._agents.values())} if self._agents else {})}

    def _read(self, message: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
        kind = str(message.get("type"))
        if chat := text(message.get("chatId")):
            self._facts["chatId"] = chat
        if kind.startswith(_DEBUG):
            yield from self._read_debug(kind.removeprefix(_DEBUG), message)
        elif kind == "workflow":
            yield from self._read_plan(message.get("workflow"), message)
        elif kind in ("agent_start", "agent_result"):
            yield from self._read_agent(kind, message)
        elif kind == "chat_end":
            yield from self._close(self._node(message), message, error=reason_of(message.get("error")))
            self._facts.update(rest(message, _FRAME))
        elif kind in _STEP_TYPES:
            yield from self._read_step(kind, message, where, skip)
        elif kind not in ("chat_start", "workflow_confirm"):
            skip(where, f"unknown type {kind[:60]!r}")

    def _node(self, message: dict[str, Any]) -> _Node:
        name = text(message.get("agentName"))
        key = text(message.get("nodeId")) or text(message.get("messageId")) or name or ""
        return self._nodes.setdefault(key, _Node(name, key))

    # --- The task ---

    def _read_prompt(self, prompt: object, message: dict[str, Any]) -> Iterator[Entry]:
        """Yield the prompt of the user; keep it as a fact if a reply came before it."""
        if not isinstance(prompt, str) or not prompt.strip() or self._has_prompt:
            return
        self._has_prompt = True
        if self.has_entries:
            self._facts["taskPrompt"] = prompt
        else:
            yield Prompt(id=_PROMPT, role="user", content=prompt, created_at=_time(message))

    def _read_plan(self, workflow: object, message: dict[str, Any]) -> Iterator[Entry]:
        if workflow is None:
            return
        self.workflow = workflow
        yield from self._read_prompt(fields(workflow).get("taskPrompt"), message)

    def _read_debug(self, kind: str, message: dict[str, Any]) -> Iterator[Entry]:
        """Read the fields of debugger messages that no other message repeats."""
        if kind == "task_start":
            yield from self._read_prompt(message.get("taskPrompt"), message)
            if message.get("contextParams"):
                self._facts["contextParams"] = message["contextParams"]
        elif kind == "task_finished":
            self._facts.update(rest(message, _FRAME))
            reason = message.get("stopReason")
            stopped = _STOPPED.get(reason) if isinstance(reason, str) else None
            self.status = stopped or ("error" if message.get("success") is False else self.status)
        elif kind == "plan_finished":
            yield from self._read_plan(message.get("workflow"), message)
            if message.get("usage"):
                self._facts["plan_usage"] = message["usage"]
        elif kind == "workflow_finished" and message.get("finalResult") is not None:
            self._facts["result"] = message["finalResult"]
        elif kind == "tool_call_finished":
            id_, duration = call_id_of(message), message.get("duration")
            if id_ and isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < 1e12:
                self._node(message).durations[id_] = duration

    def _read_agent(self, kind: str, message: dict[str, Any]) -> Iterator[Entry]:
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
        yield from self._close(node, message, error=error)
        result = text(message.get("result"))
        if result and not node.last_text:
            # The file has none of its text messages.
            yield self._reply(node, _Open(texts={"": result}), message)

    # --- One node ---

    def _read_step(self, kind: str, message: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
        node = self._node(message)
        if kind == "tool_result":
            yield from self._close(node, message)
            yield self._result(node, message, where, skip)
            return
        reply = node.open
        reply.began = reply.began or _time(message)
        if kind in ("text", "thinking"):
            _add_stream(reply, kind, message)
        elif kind == "tool_streaming":
            reply.unfinished = True
        elif kind == "tool_use":
            _add_call(reply, message)
        elif kind == "file":
            reply.files.append({"type": "file", **rest(message, _FRAME)})
        elif kind == "raw":
            reply.metadata.setdefault("raw", []).append(message.get("rawValue"))
        elif kind == "tool_running":
            node.progress[call_id_of(message)] = text(message.get("text")) or ""
        else:
            error = reason_of(message.get("error")) if kind == "error" else None
            yield from self._close(node, message, error=error, usage=fields(message.get("usage")))

    def _close(
        self, node: _Node, message: dict[str, Any], *, error: str | None = None, usage: dict[str, Any] | None = None
    ) -> Iterator[Entry]:
        """Yield the open reply of a node, unless it is empty and nothing failed."""
        reply, node.open = node.open, _Open()
        if usage is not None:
            reply.metadata.update(rest(message, _FRAME | {"usage", "error"}))
        if reply.has_content() or error or usage:
            yield self._reply(node, reply, message, error=error, usage=usage)

    def _reply(
        self,
        node: _Node,
        reply: _Open,
        message: dict[str, Any],
        *,
        error: str | None = None,
        usage: dict[str, Any] | None = None,
    ) -> Reply:
        reply_text = "\n\n".join(part for part in reply.texts.values() if part)
        node.last_text = reply_text or node.last_text
        node.replies += 1
        parts = [{"type": "text", "text": reply_text}] if reply_text else []
        return Reply(
            id=f"{node.key}:{node.replies - 1}",
            content=[*parts, *reply.files] if reply.files else reply_text or None,
            calls=list(reply.calls.values()),
            reasoning="\n\n".join(part for part in reply.thoughts.values() if part) or None,
            agent_name=node.name,
            usage=usage or None,
            created_at=reply.began or _time(message),
            error=error,
            scope=node.key,
            metadata=reply.metadata,
        )

    def _result(self, node: _Node, message: dict[str, Any], where: str, skip: Skip) -> Result:
        id_, tool_result = call_id_of(message), message.get("toolResult")
        if tool_result is not None and not isinstance(tool_result, dict):
            skip(f"{where}.toolResult", "not an object; stored as the output")
        node.results += 1
        progress = node.progress.pop(id_, "")
        return result_of(
            f"{node.key}:result {node.results - 1}",
            tool_result,
            scope=node.key,
            call_id=id_,
            name=text(message.get("toolName")),
            created_at=_time(message),
            duration=node.durations.pop(id_, None),
            metadata={"progress": progress} if progress else {},
        )


def _add_stream(reply: _Open, kind: str, message: dict[str, Any]) -> None:
    reply.unfinished = message.get("streamDone") is False
    if not reply.unfinished:
        streams = reply.texts if kind == "text" else reply.thoughts
        streams[text(message.get("streamId")) or ""] = text(message.get("text")) or ""


def _add_call(reply: _Open, message: dict[str, Any]) -> None:
    reply.unfinished = False
    id_ = call_id_of(message)
    known = reply.calls.get(id_) if id_ else None
    args = message.get("params")
    if known is not None and known.args and not args:
        args = known.args
    reply.calls[id_ or f"#{len(reply.calls)}"] = Call(
        id=id_ or None,
        name=text(message.get("toolName")) or "",
        args=args,
        started_at=_time(message),
        metadata=rest(message, _FRAME | {"toolId", "toolCallId", "toolName", "params"}),
    )


def result_of(id_: str, tool_result: object, *, call_id: str, metadata: dict[str, Any], **others: Any) -> Result:
    """Return the result in a `toolResult`: {content: [parts as in MCP], isError, extInfo}."""
    call_ids = [call_id] if call_id else ()
    if not isinstance(tool_result, dict) or "content" not in tool_result:
        # The tool broke its contract, so the whole value is the output.
        return Result(id=id_, output=tool_result, failed=None, call_ids=call_ids, metadata=metadata, **others)
    content = tool_result.get("content")
    parts = items(content)
    part = parts[0] if len(parts) == 1 and isinstance(parts[0], dict) else {}
    failed = tool_result.get("isError")
    return Result(
        id=id_,
        output=part["text"] if part.get("type") == "text" and isinstance(part.get("text"), str) else content,
        failed=failed if isinstance(failed, bool) else None,
        data=tool_result.get("extInfo"),
        call_ids=call_ids,
        metadata={**metadata, **rest(tool_result, ("content", "isError", "extInfo"))},
        **others,
    )


def call_id_of(message: dict[str, Any]) -> str:
    return text(message.get("toolCallId")) or text(message.get("toolId")) or ""


def _time(message: dict[str, Any]) -> datetime | None:
    return instant(message.get("timestamp"))


def reason_of(error: object) -> str | None:
    """Return the text of an error. JSON makes {} of an Error object, so an error may have no text."""
    if error is None or error == "":
        return None
    if isinstance(error, dict):
        return text(error.get("message")) or (as_json(error) if error else "an error without text")
    return text(error)


# --- Documents ----------------------------------------------------------------------------------------------------


def _values(document: Document) -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict) and (key := _wrapping_key(document)):
        yield from ((f"{key}[{index}]", item) for index, item in enumerate(document[key]))
    else:
        yield from numbered_values(document)


def _entries_by_task(
    document: Document, tasks: list[str], weights: Counter[str]
) -> Iterator[tuple[str, Callable[[], Iterator[Entry]]]]:
    """Yield the tasks with their entries. Each reading holds as many tasks as allowed, so that a file is read a few times."""
    group: list[str] = []
    for task, following in zip_longest(tasks, tasks[1:]):
        group.append(task)
        if following is not None and sum(weights[name] for name in (*group, following)) <= _MAX_HELD_CHARACTERS:
            continue
        if weights[group[0]] > _MAX_HELD_CHARACTERS:
            yield task, partial(_task_entries, document, task)
        else:
            held: dict[str, list[Entry]] = {name: [] for name in group}
            for name, entry in _read_again(document, group):
                held[name].append(entry)
            for name in group:
                yield name, partial(iter, held[name])
        group = []


def _task_entries(document: Document, task: str) -> Iterator[Entry]:
    return (entry for _task, entry in _read_again(document, [task]))


def _read_again(document: Document, tasks: list[str]) -> Iterator[tuple[str, Entry]]:
    readers = {task: _TaskReader() for task in tasks}
    for where, value in _values(document):
        message = message_of(value)
        reader = readers.get(task_of(message)) if message is not None else None
        if message is not None and reader is not None:
            for entry in reader.read(message, where, skip_silently):
                yield task_of(message), entry


def _characters(entry: Entry) -> int:
    """Return the approximate size of an entry in characters."""
    values = [entry.output] if isinstance(entry, Result) else [entry.content]
    if isinstance(entry, Reply):
        values += [entry.reasoning, *(call.args for call in entry.calls)]
    return 200 + sum(len(value) if isinstance(value, str) else len(as_json(value)) for value in values)


def _wrapping_key(document: dict[str, Any]) -> str | None:
    """Return the key under which the object holds callback messages."""
    return next((key for key in _WRAPPINGS if any(map(_is_message, items(document.get(key))[:50]))), None)


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] not in _TYPES and not value["type"].startswith(_DEBUG):
        # A message of an unknown type has the fields of all messages.
        return isinstance(value.get("taskId"), str) and isinstance(value.get("agentName"), str) and "nodeId" in value
    if value.get("streamType") in ("agent", "chat") and "chatId" in value:
        return True
    return isinstance(value.get("taskId"), str) and any(
        key in value for key in ("agentName", "nodeId", "workflow", "payload", "taskPrompt", "stopReason")
    )


# --- Chains -------------------------------------------------------------------------------------------------------


def _chain_of(value: object) -> dict[str, Any] | None:
    """Return the chain that a value is, or holds as the context of a task."""
    for chain in (value, value.get("chain") if isinstance(value, dict) else None):
        if isinstance(chain, dict) and isinstance(chain.get("agents"), list) and not _CHAIN.isdisjoint(chain):
            agents = [agent for agent in chain["agents"] if isinstance(agent, dict)]
            if all("agent" in agent or "tools" in agent for agent in agents):
                return chain
    return None


def _chain_transcript(chain: dict[str, Any], value: dict[str, Any], where: str, place: int, skip: Skip) -> Transcript:
    entries = list(_chain_entries(chain, where, skip))
    plan = text(chain.get("planResult"))
    agents = [link for link in chain["agents"] if isinstance(link, dict)]
    is_wrapped = value is not chain
    workflow = value.get("workflow") if is_wrapped else None
    if workflow is None and (plan or agents):
        workflow = {"xml": plan, "agents": [link.get("agent") for link in agents]}
        workflow |= {name: element for name in ("name", "thought") if (element := _element_text(plan or "", name))}
    return Transcript(
        entries=partial(iter, entries),
        place=place,
        external_id=text(value.get("taskId")) or _task_of_agents(agents),
        title=text(fields(workflow).get("name")),
        status="error" if any(fields(link.get("agent")).get("status") == "error" for link in agents) else None,
        workflow=workflow,
        metadata={
            **(rest(value, ("chain", "taskId", "workflow")) if is_wrapped else {}),
            **rest(chain, ("agents", "taskPrompt", "planResult")),
            "agents": [_agent_facts(link) for link in agents],
        },
    )


def _chain_entries(chain: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
    if prompt := text(chain.get("taskPrompt")):
        yield Prompt(id=_PROMPT, role="user", content=prompt)
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
    for parts, uses in _by_request(tools, path, skip):
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


def _by_request(tools: list[Any], path: str, skip: Skip) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Yield the parts of each model message that requests tools, with the tool uses that it requests."""
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
            parts, uses = _requesting_parts(use, id_), []
            waiting = {call_id_of(part) for part in parts if part.get("type") == "tool-call"}
        waiting.discard(id_)
        uses.append(use)
    if uses:
        yield parts, uses


def _requesting_parts(use: dict[str, Any], id_: str) -> list[dict[str, Any]]:
    """Return the parts of the model message that requests this call: the last such message of the `request`."""
    for message in reversed(items(fields(use.get("request")).get("messages"))):
        parts = [part for part in items(fields(message).get("content")) if isinstance(part, dict)]
        if fields(message).get("role") == "assistant" and any(
            part.get("type") == "tool-call" and call_id_of(part) == id_ for part in parts
        ):
            return parts
    return []


def _joined(parts: Iterable[dict[str, Any]], kind: str) -> str | None:
    texts = [part["text"] for part in parts if part.get("type") == kind and isinstance(part.get("text"), str)]
    return "\n\n".join(filter(None, texts)) or None


def _chain_calls(parts: list[dict[str, Any]], uses: list[dict[str, Any]]) -> list[Call]:
    """Return the requested calls, including those that were not executed."""
    requested = [part for part in parts if part.get("type") == "tool-call"]
    executed = {call_id_of(use): use for use in uses}
    known = {call_id_of(part) for part in requested}
    # The arguments are those of the request, because a tool can change its `params`.
    return [
        Call(
            id=call_id_of(part) or None,
            name=text(part.get("toolName")) or "",
            args=next((part[name] for name in ("input", "args") if name in part), None)
            or fields(executed.get(call_id_of(part))).get("params"),
        )
        for part in requested
    ] + [
        Call(id=call_id_of(use) or None, name=text(use.get("toolName")) or "", args=use.get("params"))
        for use in uses
        if call_id_of(use) not in known
    ]


def _agent_facts(link: dict[str, Any]) -> dict[str, Any]:
    """Return the prompts, the request and the other fields of an agent, once, not for each call."""
    request = fields(link.get("agentRequest"))
    messages = [message for message in items(request.get("messages")) if isinstance(message, dict)]
    prompts = {
        role: next((message.get("content") for message in messages if message.get("role") == role), None)
        for role in ("system", "user")
    }
    facts = {**rest(link, ("tools", "agent", "agentRequest", "agentResult")), **fields(link.get("agent"))}
    return {**facts, **rest(prompts, ()), "request": rest(request, ("messages", "abortSignal"))}


def _task_of_agents(agents: list[dict[str, Any]]) -> str | None:
    """Return the id of the task; the id of an agent is that of its task, a hyphen and a number."""
    for link in agents:
        task, _hyphen, number = (text(fields(link.get("agent")).get("id")) or "").rpartition("-")
        if task and number.isdecimal():
            return task
    return None


def _element_text(xml: str, name: str) -> str | None:
    """Return the text of the first element with this name. A model wrote the plan, so it may be invalid XML."""
    _before, opened, after = xml.partition(f"<{name}>")
    element, closed, _rest = after.partition(f"</{name}>")
    return element.strip() if opened and closed else None
