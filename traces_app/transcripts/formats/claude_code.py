"""Transcripts of Claude Code: the JSON lines that it keeps of its sessions, and what comes out of them.

* the file of a session (`~/.claude/projects/<project>/<session>.jsonl`): a line for each prompt (`user`), each content
  block of an answer (`assistant`), what went on (`progress`, `system`), and bookkeeping;
* the file of a sub-agent (`<session>/subagents/agent-<id>.jsonl`): the same lines, all of them `isSidechain`;
* the stream of the agent SDK (`--output-format stream-json`: `session_id`, `parent_tool_use_id`);
* the export of Claude Code on the web: `{"loglines": [...]}`.

How they are mapped:

* A session is a `sessionId`, a message's external id the `uuid` of its first line. These are unique in the world: what
  has them is the same, however much of a session a file has, and lines that stand twice count once.
* Lines of one API message (`message.id`) are one reply, known by that id, with its last usage; results may stand between
  them. Its text is the thought of the calls. `isApiErrorMessage` is an error.
* A line with results is their results; `toolUseResult` is the data of its one result. Other lines of the user are
  prompts; those that the client put in (`isMeta`, summaries of a compaction, queued commands) end no turn.
* Text that the user types while the agent works is queued (`queue-operation`, `enqueue`). Where the client hands it to
  the model in mid-turn (`remove`) and repeats it in no other line, it is a user message that ends no turn, at the time
  of the `remove`. A `dequeue` is followed by a user line, and `popAll` gives the text back to the user.
* A line that is written again (same `uuid` and content, as on resume) counts once, whatever else changed in it.
* A sub-agent's replies are steps below the call that started it (known by the `agentId` of the result or of a progress
  line, or by its prompt); what it was told before its first reply (`prompt`, a list where these are several lines) is
  in the metadata of that reply, and what it was told after one (`told_after`) in the metadata of that one. Progress lines repeat calls of a sub-agent and
  their results: what stands in a line of its own is not taken from there. A sub-agent's file alone is a message of its session,
  "agent-<id>", with the same steps.
* `system` lines with a text are messages of the system; titles and summaries are the title. Lines of bookkeeping
  (snapshots of files, progress of commands and hooks) say nothing of the conversation: they are left out, and counted.

A file may be large: it is read twice, and of a line the first reading keeps numbers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from traces_app.normalize.json_values import fields, instant, items, rest, text, time_flags
from traces_app.transcripts.entries import SHARE, Call, Entry, Reply, Result, Said, Transcript
from traces_app.transcripts.files.documents import Document, Files, Line, Lines, Skip
from traces_app.transcripts.parsing.content_blocks import Blocks, blocks_of, read_blocks

NAME = "claude_code"

_SPOKEN = ("user", "assistant")
_BLOCKS = ("tool_use", "tool_result")
_KEPT = ("system", "attachment", "progress", "queue-operation")
_PREAMBLE = ("custom-title", "ai-title", "last-prompt", "mode", "permission-mode", "agent-name", "worktree-state")
"""Many of them may stand before the first message."""
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_SAID_OF_SESSION = {"summary": "summaries", "result": "results", "agent-name": "agent_names", "tag": "tags", "pr-link": "pr_links", "init": "inits"}  # fmt: skip
_CONTEXT = ("cwd", "version", "gitBranch", "userType", "slug", "entrypoint", "permissionMode")
# What becomes a field of a record; everything else of a line is kept in metadata.
_LINE_FIELDS = frozenset(
    [*("type", "uuid", "timestamp", "message", "sessionId", "session_id", "toolUseResult", "tool_use_result"),
     *("isSidechain", "agentId", "parent_tool_use_id", "isApiErrorMessage", *_CONTEXT)]
)  # fmt: skip
_MESSAGE_FIELDS = frozenset({"role", "content", "model", "usage", "type", "id"})
_ASIDES = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isSynthetic")
_QUEUED = "queue-operation"
_ABSORBED = "absorbed_mid_turn"
"""Why text was taken out of the queue, where the model got it; older versions give no reason."""
_NOTIFICATION = "<task-notification>"
_MOST_OF_A_KIND = 100
"""Of summaries and the like so many are kept."""


def recognises(document: Document) -> bool:
    """Whether the document is of this format: messages in lines that say whose session or which line they are."""
    return any(_is_line(line.value) for line, _where in _head(document))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The sessions of a document that `recognises` accepts; what they leave out is told to `skip`."""
    tell = _Once(skip)
    survey = _Survey(document, tell)
    for place, part in enumerate(survey.parts.values()):
        if part.has_main or not part.agents:
            yield _transcript(document, part, place, None, tell)
        else:
            for agent in part.agents:
                yield _transcript(document, part, place, agent, tell)
    for kind, count in (+survey.left_out).items():
        skip("(all)", f"bookkeeping, {kind}: {count} line{'s' * (count > 1)}")


def _transcript(document: Document, part: _Part, place: int, agent: str | None, skip: Skip) -> Transcript:
    """The session of a part, or the sub-agent's share in it."""
    return Transcript(
        entries=partial(_entries, document, part, agent, skip),
        place=place,
        external_id=part.session_id,
        has_own_ids=part.session_id is not None,
        title=part.title(),
        status="error" if part.has_failed and agent is None else None,
        created_at=part.began if agent is not None else None,
        metadata=part.context if agent is None else {},
    )


# --- Lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Once:
    """Tells each thing once, however often the lines are read."""

    skip: Skip
    told: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, where: str, why: str) -> None:
        if (where, why) not in self.told:
            self.told.add((where, why))
            self.skip(where, why)


def _numbered(document: Document) -> Iterator[tuple[Line, str]]:
    """The lines of a document, with their places."""
    if isinstance(document, Lines):
        yield from ((_as_spoken(line), f"line {line.number}") for line in document)
        return
    container = "loglines" if isinstance(document, dict) and "loglines" in document else ""
    found = fields(document)["loglines"] if container else document
    for index, value in enumerate(found if isinstance(found, list) else [found]):
        yield _as_spoken(Line(index + 1, value)), f"{container}[{index}]"


def _as_spoken(line: Line) -> Line:
    """The line; of one that is called after its block, as other writers do, that of the role which says it."""
    value = line.value
    if not isinstance(value, dict) or value.get("type") not in _BLOCKS:
        return line
    role = fields(value.get("message")).get("role")
    return Line(line.number, {**value, "type": role}) if role in _SPOKEN else line


def _head(document: Document) -> Iterator[tuple[Line, str]]:
    if isinstance(document, Files):
        return
    if isinstance(document, Lines):
        yield from ((Line(0, value), "") for value in document.head())
    else:
        yield from (found for found, _number in zip(_numbered(document), range(50), strict=False))


def _is_line(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if kind in _SPOKEN:
        message = value.get("message")
        is_named = "sessionId" in value or "session_id" in value or "uuid" in value or "timestamp" in value
        return isinstance(message, dict) and message.get("role") == kind and "content" in message and is_named
    if kind in _KEPT:
        return isinstance(value.get("sessionId"), str) and "timestamp" in value
    if kind in _PREAMBLE:
        return isinstance(value.get("sessionId"), str)
    if kind == "system":
        return isinstance(value.get("session_id"), str) and value.get("subtype") == "init"
    return (kind == "summary" and "leafUuid" in value) or (kind == "file-history-snapshot" and "snapshot" in value)


def _unfolded(value: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The line itself, or that of a sub-agent which a progress line repeats; and whether it is one of these."""
    data = fields(value.get("data"))
    inner = data.get("message")
    if value.get("type") != "progress" or data.get("type") != "agent_progress" or not isinstance(inner, dict):
        return value, False
    return {
        **inner,
        "sessionId": value.get("sessionId"),
        "agentId": text(data.get("agentId")) or text(value.get("parentToolUseID")),
        "parent_tool_use_id": value.get("parentToolUseID"),
        "isSidechain": True,
    }, True


def _session_of(value: dict[str, Any]) -> str | None:
    return text(value.get("sessionId")) or text(value.get("session_id"))


def _is_aside(value: dict[str, Any]) -> bool:
    return any(value.get(key) is True for key in _ASIDES)


def _said_by_user(value: dict[str, Any]) -> bool:
    """Whether the line is a prompt: it has more than results, and nobody but the user put it in."""
    return not _is_aside(value) and _is_told(value)


def _number(*said: str) -> int:
    """64 bits that stand for a text."""
    return int.from_bytes(blake2b("\0".join(said).encode("utf-8", "backslashreplace"), digest_size=8).digest())


def _said_in(message: dict[str, Any]) -> str:
    """A digest of what a message says.

    The client writes a line again on resume, with fields around the content that the first one did not have: those
    are not compared, and null is the same as no field.
    """
    blocks = [
        {name: item for name, item in block.items() if item is not None} if isinstance(block, dict) else block
        for block in blocks_of(message.get("content"))
    ]
    try:
        return blake2b(msgspec.json.encode([message.get("id"), blocks], order="sorted"), digest_size=8).hexdigest()
    except (RecursionError, UnicodeEncodeError):
        return ""


def _call_ids(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in items(message.get("content")):
        if isinstance(block, dict) and block.get("type") == "tool_use" and (id_ := text(block.get("id"))):
            yield id_, block


# --- First reading ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Part:
    """What a document has of one session."""

    session_id: str | None
    first: int
    last: int
    """The first and the last of its lines, counted from 0."""
    has_main: bool = False
    agents: dict[str, bool] = field(default_factory=dict)
    """The sub-agents, and whether they have lines of their own."""
    parents: dict[str, str] = field(default_factory=dict)
    """The calls that started them."""
    ends: dict[int, int] = field(default_factory=dict)
    """Of an API message of several lines the last line, by its first one."""
    left_out: set[int] = field(default_factory=set)
    """Lines that stand here before."""
    absorbed: dict[int, int] = field(default_factory=dict)
    """The lines where the client handed queued text to the model, by those where the user typed it."""
    renamed: dict[int, int] = field(default_factory=dict)
    """Lines that say something else under the uuid of an earlier one, numbered."""
    context: dict[str, Any] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    leaves: list[tuple[int, str]] = field(default_factory=list)
    uuids: dict[int, int] = field(default_factory=dict)
    last_of: dict[str | None, int] = field(default_factory=dict)
    """The last line of the main conversation (None) and of each sub-agent."""
    has_failed: bool = False
    began: datetime | None = None
    """The first time that one of its prompts and answers says. The prompt of a sub-agent is no entry, but the first line."""

    def title(self) -> str | None:
        found = next((self.titles[kind] for kind in _TITLES if kind in self.titles), None)
        # A summary may be that of another session, which this one goes on with.
        return found or next((title for leaf, title in reversed(self.leaves) if leaf in self.uuids), None)


class _Survey:
    """What the lines of a document are, found out by reading them once."""

    def __init__(self, document: Document, skip: Skip) -> None:
        self.parts: dict[str | None, _Part] = {}
        self.left_out: Counter[str] = Counter()
        self._skip = skip
        self._here: str | None = None
        self._chains = _Chains()
        self._open: dict[tuple[str | None, str | None], dict[str, int]] = {}
        """By session and agent, the first lines of the API messages that may go on."""
        self._prompts: dict[int, list[str]] = {}
        """The calls that gave a prompt to somebody."""
        self._own: set[int] = set()
        """The calls and results that stand in lines of their own."""
        self._repeated: list[tuple[_Part, int, str, list[int]]] = []
        self._queues: dict[str | None, _Queue] = {}
        """By session."""
        self._last_replies: dict[tuple[str | None, str], int] = {}
        """By session and sub-agent, the first line of its last reply."""
        self._beside: list[tuple[str, dict[str, Any]]] = []
        for ordinal, (line, where) in enumerate(_numbered(document)):
            if isinstance(line.value, dict):
                self._note(ordinal, line.value, where)
            else:
                skip(where, "not an object")
        self._settle_repeated()
        self._settle_beside()

    def _note(self, ordinal: int, value: dict[str, Any], where: str) -> None:
        kind = value.get("type")
        line, is_repeated = _unfolded(value)
        if kind in _SPOKEN or is_repeated:
            if line.get("type") in _SPOKEN and isinstance(line.get("message"), dict):
                self._note_spoken(ordinal, line, where, is_repeated)
            else:
                self._skip(where, "no message")
        elif kind == _QUEUED:
            self._queues.setdefault(_session_of(value) or self._here, _Queue()).note(ordinal, value)
            self.left_out[_QUEUED] += 1
        elif isinstance(kind, str) and (kind in _TITLES or kind in _SAID_OF_SESSION):
            self._beside.append((kind, value))
        elif kind == "system" and value.get("subtype") == "init":
            self._beside.append(("init", value))
        elif (aside := _aside_of(value)) is not None:
            part = self._part(_session_of(value), ordinal)
            if aside[0] == "user" and (queue := self._queues.get(part.session_id)):
                queue.repeat(_text_of({"content": aside[1]}))
        elif isinstance(kind, str):
            subtype = value.get("subtype") or fields(value.get("data")).get("type") or fields(value.get("attachment")).get("type")  # fmt: skip
            self.left_out[f"{kind} {subtype}" if isinstance(subtype, str) else kind] += 1
        else:
            self._skip(where, "no type")

    def _part(self, session_id: str | None, ordinal: int) -> _Part:
        if session_id is not None:
            self._here = session_id
        part = self.parts.setdefault(self._here, _Part(self._here, ordinal, ordinal))
        part.last = ordinal
        return part

    def _note_spoken(self, ordinal: int, line: dict[str, Any], where: str, is_repeated: bool) -> None:
        part = self._part(_session_of(line), ordinal)
        message, agent = line["message"], self._chains.agent_of(line)
        parent = text(line.get("parent_tool_use_id"))
        part.began = part.began or instant(line.get("timestamp"))
        part.has_main = part.has_main or agent is None or is_repeated
        if agent is None:
            for key in _CONTEXT:
                if line.get(key) and key not in part.context:
                    part.context[key] = line[key]
        else:
            is_new = agent not in part.agents
            part.agents[agent] = part.agents.get(agent, False) or not is_repeated
            if is_new and parent is None:
                asked = self._prompts.get(_number(_text_of(message)))
                parent = asked.pop(0) if asked else None
            if parent is not None:
                part.parents.setdefault(agent, parent)
        done = [_number("call", id_) for id_, _block in _call_ids(message)] + [
            _number("result", text(fields(block).get("tool_use_id")) or "") for block in items(message.get("content"))
            if fields(block).get("type") == "tool_result"
        ]  # fmt: skip
        if is_repeated and agent is not None:
            self._repeated.append((part, ordinal, agent, done))
        elif self._is_first(part, ordinal, line, where):
            self._own.update(done)
        else:
            return
        self._join(part, ordinal, agent, line)
        if agent is None and not is_repeated and (queue := self._queues.get(part.session_id)):
            self._settle_queued(part, queue, line)
        for id_, block in _call_ids(message):
            if isinstance(prompt := fields(block.get("input")).get("prompt"), str):
                self._prompts.setdefault(_number(prompt.strip()), []).append(id_)
        started = text(fields(line.get("toolUseResult")).get("agentId"))
        if started:
            answered = [text(fields(block).get("tool_use_id")) for block in items(message.get("content"))]
            if len(answered) == 1 and answered[0]:
                part.parents.setdefault(started, answered[0])

    def _is_first(self, part: _Part, ordinal: int, line: dict[str, Any], where: str) -> bool:
        uuid = text(line.get("uuid"))
        if uuid is None:
            return True
        name, said = _number(uuid), _number(_said_in(line["message"]))
        if name not in part.uuids:
            part.uuids[name] = said
        elif part.uuids[name] == said or _number(uuid, str(said)) in part.uuids:
            part.left_out.add(ordinal)
            self._skip(where, "a line that stands here before")
            return False
        else:
            part.uuids[_number(uuid, str(said))] = said
            part.renamed[ordinal] = len(part.renamed) + 1
        return True

    def _join(self, part: _Part, ordinal: int, agent: str | None, line: dict[str, Any]) -> None:
        """Notes which lines are one API message; a prompt ends all of its agent.

        What a sub-agent is told after a reply belongs to that reply, which therefore ends there.
        """
        part.last_of[agent] = ordinal
        if line["type"] == "assistant":
            first = ordinal
            if id_ := text(line["message"].get("id")):
                first = self._open.setdefault((part.session_id, agent), {}).setdefault(id_, ordinal)
                if first != ordinal:
                    part.ends[first] = ordinal
            if agent is not None:
                self._last_replies[part.session_id, agent] = first
            return
        if _said_by_user(line):
            self._open.pop((part.session_id, agent), None)
        if agent is not None and _is_told(line):
            replied = self._last_replies.get((part.session_id, agent))
            if replied is not None:
                part.ends[replied] = ordinal

    def _settle_queued(self, part: _Part, queue: _Queue, line: dict[str, Any]) -> None:
        """Decides about queued text by the next line of the main conversation."""
        if line["type"] == "user":
            if _is_told(line):
                queue.repeat(_text_of(line["message"]))
            return
        absorbed = queue.read_by(text(line["message"].get("id")))
        part.absorbed.update(absorbed)
        self.left_out[_QUEUED] -= 2 * len(absorbed)

    def _settle_repeated(self) -> None:
        """Of what progress lines repeat, what no line of the sub-agent's own says is taken from them."""
        for part, ordinal, agent, done in self._repeated:
            is_said = all(number in self._own for number in done) if done else part.agents[agent]
            if is_said:
                part.left_out.add(ordinal)

    def _settle_beside(self) -> None:
        for kind, value in self._beside:
            part = self.parts.get(_session_of(value)) or next(iter(self.parts.values()), None)
            if part is None:
                self.left_out[kind] += 1
            elif kind in _TITLES:
                if isinstance(title := value.get(_TITLES[kind]), str):
                    part.titles[kind] = title
            else:
                leaf, summary = text(value.get("leafUuid")), value.get("summary")
                if leaf and isinstance(summary, str):
                    owner = next((found for found in self.parts.values() if _number(leaf) in found.uuids), part)
                    owner.leaves.append((_number(leaf), summary))
                part.has_failed = value.get("is_error") is True if kind == "result" else part.has_failed
                kept = part.context.setdefault(_SAID_OF_SESSION[kind], [])
                if len(kept) < _MOST_OF_A_KIND:
                    kept.append(rest(value, ("type", "sessionId", "session_id")))


class _Chains:
    """Which sub-agent a line is of: as it says, else by the line that it follows."""

    def __init__(self) -> None:
        self._roots: dict[int, str] = {}

    def agent_of(self, line: dict[str, Any]) -> str | None:
        """None for the main conversation."""
        said = text(line.get("agentId")) if line.get("isSidechain") else None
        said = said or text(line.get("parent_tool_use_id"))
        if said or not line.get("isSidechain"):
            return said
        uuid, before = text(line.get("uuid")) or "", text(line.get("parentUuid"))
        agent = (self._roots.get(_number(before), uuid) if before else uuid) or "unnamed"
        self._roots[_number(uuid)] = agent
        return agent


@dataclass(eq=False)
class _Queue:
    """Text that the user typed while the agent worked, until it is known what became of it."""

    waiting: list[tuple[int, str]] = field(default_factory=list)
    """The lines where it was typed, and the text ("" where that is not the user's)."""
    removed: list[tuple[int, int, str]] = field(default_factory=list)
    """What the client took out of the queue: the line where it was typed, the line where it was taken out, the text."""
    answering: str | None = None
    """The id of the API message that was read last: it was begun before what is removed after it."""

    def note(self, ordinal: int, value: dict[str, Any]) -> None:
        operation, said = value.get("operation"), _text_of(value)
        if operation == "enqueue":
            self.waiting.append((ordinal, "" if said.startswith(_NOTIFICATION) else said))
        elif operation == "popAll":
            self.waiting.clear()
        elif operation in ("remove", "dequeue") and self.waiting:
            # Newer versions say the text. Without it the first one is meant, as in any queue.
            found = next((one for one in self.waiting if said and one[1] == said), self.waiting[0])
            self.waiting.remove(found)
            if operation == "remove" and found[1] and value.get("reason", _ABSORBED) == _ABSORBED:
                self.removed.append((found[0], ordinal, found[1]))

    def repeat(self, said: str) -> None:
        """Forgets what another line says as well."""
        for index, (_typed, _taken, queued) in enumerate(self.removed):
            if _is_same(queued, said):
                del self.removed[index]
                return
        for index, (typed, queued) in enumerate(self.waiting):
            if _is_same(queued, said):
                # It stays in the queue, from which it is still to be taken.
                self.waiting[index] = (typed, "")
                return

    def read_by(self, answer: str | None) -> dict[int, int]:
        """What was taken out before the model began this answer: that nothing repeats it is known by now."""
        if answer is not None and answer == self.answering:
            return {}
        self.answering = answer
        found = {typed: taken for typed, taken, _queued in self.removed}
        self.removed.clear()
        return found


def _is_same(queued: str, said: str) -> bool:
    """Whether a line says what was queued; of a command of the client a line says its name in a tag."""
    if not queued:
        return False
    return queued == said or (queued.startswith("/") and f"<command-name>{queued.split()[0]}</command-name>" in said)


def _is_told(line: dict[str, Any]) -> bool:
    """Whether a line of the user holds more than results of tools."""
    return any(
        not (isinstance(block, dict) and block.get("type") == "tool_result")
        for block in blocks_of(line["message"].get("content"))
    )


def _text_of(message: dict[str, Any]) -> str:
    """The text of a prompt."""
    said = message.get("content")
    if isinstance(said, str):
        return said.strip()
    texts = [fields(block).get("text") for block in items(said)]
    return "\n".join(found for found in texts if isinstance(found, str)).strip()


def _aside_of(value: dict[str, Any]) -> tuple[str, Any] | None:
    """What a line says that is no message of the API: its role and its content."""
    kind, said = value.get("type"), value.get("content")
    if kind == "system" and isinstance(said, str) and said:
        return "system", said
    attached = fields(value.get("attachment"))
    if kind == "attachment" and attached.get("type") == "queued_command" and attached.get("prompt"):
        return "user", attached["prompt"]
    return None


# --- Second reading ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Answer:
    """A reply on its way through the lines of its API message."""

    key: tuple[str | None, str | None]
    """Its agent, and the id of the API message."""
    reply: Reply
    blocks: Blocks
    end: int

    def add(self, blocks: Blocks, usage: object, stop_reason: object, at: datetime | None) -> None:
        known = {call.id for call in self.blocks.calls if call.id}
        self.blocks.said += blocks.said
        self.blocks.reasoning += blocks.reasoning
        # The id of a call is unique in an answer: another block of the same id is the same call, written again.
        self.blocks.calls += [call for call in blocks.calls if call.id not in known]
        for name, value in blocks.metadata.items():
            self.blocks.metadata[name] = [*self.blocks.metadata.get(name, ()), *value]
        if stop_reason:
            self.blocks.metadata["stop_reason"] = stop_reason
        if at is not None:
            self.reply = replace(self.reply, ended_at=max(self.reply.ended_at or at, at))
        if isinstance(usage, dict) and _output_tokens(usage) >= _output_tokens(self.reply.usage or {}):
            # Each line has the usage so far; it is counted once.
            self.reply = replace(self.reply, usage=usage)

    def finished(self) -> Reply:
        return replace(
            self.reply,
            content=self.blocks.content,
            reasoning=self.blocks.thought,
            calls=self.blocks.calls,
            metadata={**self.reply.metadata, **self.blocks.metadata},
        )


def _output_tokens(usage: dict[str, Any]) -> float:
    count = usage.get("output_tokens")
    return count if isinstance(count, int | float) else 0


def _entries(document: Document, part: _Part, agent: str | None, skip: Skip) -> Iterator[Entry]:
    found = _Reader(part, agent, skip).entries(document)
    if agent is None:
        yield from found
        return
    first = next(found, None)
    if first is not None:
        yield replace(first, id=f"{SHARE}{agent}")
    yield from found


class _Reader:
    """The entries of one part, in the order of their first lines."""

    def __init__(self, part: _Part, agent: str | None, skip: Skip) -> None:
        self._part = part
        self._only = agent
        self._skip = skip
        self._chains = _Chains()
        self._here: str | None = None
        self._waiting: list[Entry | _Answer] = []
        """What is read and comes after an answer whose last line is not."""
        self._open: dict[tuple[str | None, str | None], _Answer] = {}
        self._prompts: dict[str, list[Any]] = {}
        """What sub-agents were told before their next replies."""
        self._last_replies: dict[str, _Answer] = {}
        """The last replies of sub-agents, while they are not given out."""
        self._typed: dict[int, dict[str, Any]] = {}
        """Lines with queued text, by the lines where the model got it."""

    def entries(self, document: Document) -> Iterator[Entry]:
        for ordinal, (line, where) in enumerate(_numbered(document)):
            if ordinal > self._part.last:
                break
            if isinstance(line.value, dict):
                self._read(ordinal, line.value, where)
                yield from self._ready(ordinal)
        yield from self._ready(self._part.last)

    def _ready(self, ordinal: int) -> Iterator[Entry]:
        ready = 0
        for item in self._waiting:
            if isinstance(item, _Answer) and item.end > ordinal:
                break
            ready += 1
        done, self._waiting = self._waiting[:ready], self._waiting[ready:]
        for item in done:
            if not isinstance(item, _Answer):
                yield item
                continue
            agent = item.key[0]
            if self._open.get(item.key) is item:
                del self._open[item.key]
            if agent is not None and self._last_replies.get(agent) is item:
                del self._last_replies[agent]
            if not self._is_only_begun(item):
                yield item.finished()

    def _is_only_begun(self, answer: _Answer) -> bool:
        """Whether an answer has said nothing yet but its thinking, at the end of what its agent said: it may become a
        call as well as words."""
        blocks = answer.blocks
        is_last = answer.end == self._part.last_of.get(answer.key[0])
        return is_last and not answer.reply.error and not blocks.calls and not any(map(_is_said, blocks.said))

    def _read(self, ordinal: int, value: dict[str, Any], where: str) -> None:
        line, is_repeated = _unfolded(value)
        if value.get("type") == _QUEUED:
            self._queue(ordinal, value)
            return
        is_spoken = (value.get("type") in _SPOKEN or is_repeated) and isinstance(line.get("message"), dict)
        if not is_spoken and _aside_of(value) is None:
            return
        self._here = _session_of(line) or self._here
        if self._here != self._part.session_id:
            return
        time = line.get("timestamp")
        if not is_spoken:
            if self._only is None:
                self._put_aside(ordinal, value, time)
            return
        agent = self._chains.agent_of(line)
        if ordinal in self._part.left_out or (self._only is not None and agent != self._only):
            return
        if line.get("type") == "assistant":
            self._reply(ordinal, line, agent, where, is_repeated=is_repeated)
        elif line.get("type") == "user":
            self._user(ordinal, line, agent, where)

    def _queue(self, ordinal: int, value: dict[str, Any]) -> None:
        """Reads text that was typed in mid-turn, where the model got it."""
        if ordinal in self._part.absorbed:
            self._typed[self._part.absorbed[ordinal]] = value
        elif (typed := self._typed.pop(ordinal, None)) is not None and self._only is None:
            said, time = typed["content"], value.get("timestamp")
            self._waiting.append(
                Said(
                    id=f"queued-{_number(str(typed.get('timestamp')), _text_of(typed)):016x}",
                    role="user",
                    content=said,
                    created_at=instant(time),
                    health=time_flags(time),
                    is_aside=True,
                    metadata={"queued_at": typed["timestamp"]} if typed.get("timestamp") else {},
                )
            )

    def _put_aside(self, ordinal: int, value: dict[str, Any], time: object) -> None:
        said = _aside_of(value)
        assert said is not None, "asked before"
        role, content = said
        taken = _LINE_FIELDS | {"content", "isMeta", *({"attachment"} if role == "user" else ())}
        self._waiting.append(
            Said(
                id=self._id(ordinal, value),
                role="user" if role == "user" else "system",
                content=content if isinstance(content, str | list) else text(content),
                created_at=instant(time),
                health=time_flags(time),
                is_aside=True,
                metadata=rest(value, taken),
            )
        )

    def _id(self, ordinal: int, line: dict[str, Any]) -> str:
        uuid = text(line.get("uuid"))
        if uuid is None:
            return str(ordinal)
        return f"{uuid}/{self._part.renamed[ordinal]}" if ordinal in self._part.renamed else uuid

    def _beside(self, line: dict[str, Any]) -> dict[str, Any]:
        """What a line says that no field of a record does, and its context where that is not the session's."""
        changed = {
            name: line[name] for name in _CONTEXT if line.get(name) and line[name] != self._part.context.get(name)
        }
        return {**rest(line, _LINE_FIELDS), **rest(line["message"], _MESSAGE_FIELDS), **changed}

    def _user(self, ordinal: int, line: dict[str, Any], agent: str | None, where: str) -> None:
        id_, time = self._id(ordinal, line), line.get("timestamp")
        blocks = read_blocks(line["message"].get("content"), id_, f"{where}: content", self._skip)
        metadata = {**self._beside(line), **blocks.metadata}
        at, flags = instant(time), time_flags(time)
        results = [replace(result, created_at=at, health=flags) for result in blocks.results]
        if len(results) == 1:
            results = [_with_data(results[0], line.get("toolUseResult", line.get("tool_use_result")))]
            if agent is not None:
                # Progress lines do not say how long it took, but when it began and was done.
                results = [replace(results[0], duration=None)]
        elif said := line.get("toolUseResult"):
            metadata["toolUseResult"] = said
        if results and blocks.content is None:
            results[0] = replace(results[0], metadata={**results[0].metadata, **metadata})
        self._waiting += results
        if blocks.content is None and results:
            return
        if agent is not None:
            if (replied := self._last_replies.get(agent)) is not None:
                replied.reply.metadata.setdefault("told_after", []).append(blocks.content)
            else:
                self._prompts.setdefault(agent, []).append(blocks.content)
            return
        self._waiting.append(
            Said(
                id=id_,
                role="user",
                content=blocks.content,
                created_at=at,
                health=flags,
                is_aside=_is_aside(line),
                metadata=metadata,
            )
        )

    def _reply(self, ordinal: int, line: dict[str, Any], agent: str | None, where: str, *, is_repeated: bool) -> None:
        message, time = line["message"], line.get("timestamp")
        id_, own_id = self._id(ordinal, line), text(message.get("id"))
        blocks = read_blocks(message.get("content"), id_, f"{where}: content", self._skip)
        at, flags = instant(time), time_flags(time)
        blocks.calls = [_started(call, at) for call in blocks.calls]
        answer = self._open.get((agent, own_id)) if own_id else None
        if answer is None or ordinal > answer.end:
            metadata = self._beside(line)
            model = text(message.get("model"))
            if own_id:
                metadata["message_id"] = own_id
            if model and model.startswith("<"):
                metadata["model"], model = model, None
            if is_repeated:
                # Progress lines leave out words, and so the first time and the last usage: those are in the agent's file.
                metadata["progress"] = rest({"timestamp": time, "usage": message.get("usage")}, ())
            if agent is not None and (told := self._prompts.pop(agent, None)):
                metadata["prompt"] = told[0] if len(told) == 1 else told
            answer = _Answer(
                (agent, own_id),
                Reply(
                    id=id_,
                    content=None,
                    agent_name=agent,
                    model=model,
                    created_at=None if is_repeated else at,
                    step_id=own_id or (id_ if self._part.session_id else None),
                    parent_call=self._part.parents.get(agent, "") if agent is not None else None,
                    error=_text_of(message) or text(line.get("error")) or "API error"
                    if line.get("isApiErrorMessage") is True
                    else None,
                    health=flags,
                    metadata=metadata,
                ),
                Blocks(),
                self._part.ends.get(ordinal, ordinal),
            )
            self._waiting.append(answer)
            if agent is not None:
                self._last_replies[agent] = answer
            if own_id:
                self._open[agent, own_id] = answer
        answer.add(
            blocks,
            None if is_repeated else message.get("usage"),
            message.get("stop_reason"),
            None if is_repeated else at,
        )
        self._waiting += [replace(result, created_at=at, health=flags) for result in blocks.results]


def _is_said(block: object) -> bool:
    """Whether this is anything but blank text, with which answers sometimes begin."""
    said = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
    return not isinstance(said, str) or bool(said.strip())


def _started(call: Call, at: datetime | None) -> Call:
    return replace(call, started_at=at)


def _with_data(result: Result, said: object) -> Result:
    """The result with what Claude Code keeps of it for itself, unless that is the same."""
    if not said or said == result.output or said == f"Error: {result.output}":
        return result
    if not isinstance(said, dict | list):
        return replace(result, metadata={**result.metadata, "toolUseResult": said})
    took = [fields(said).get(name) for name in ("totalDurationMs", "durationMs")]
    duration = next(
        (ms for ms in took if isinstance(ms, int | float) and not isinstance(ms, bool) and 0 <= ms < 1e12), None
    )
    return replace(result, data=said, duration=duration)
