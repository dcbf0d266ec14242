"""Read transcripts of Claude Code: session files, sub-agent files, SDK streams and web exports.

* A session file (`~/.claude/projects/<project>/<session>.jsonl`) has one line for each prompt (`user`), each content
  block of an answer (`assistant`), each notice (`progress`, `system`), and bookkeeping.
* A sub-agent file (`<session>/subagents/agent-<id>.jsonl`) has the same lines, all of them `isSidechain`.
* The agent SDK streams lines with `session_id` and `parent_tool_use_id` (`--output-format stream-json`).
* Claude Code on the web exports `{"loglines": [...]}`.

Mapping:

* A session is a `sessionId`; the external id of a message is the `uuid` of its first line. Both are globally unique, so
  a file may hold any part of a session, and a line that occurs twice counts once.
* Lines with one `message.id` are one reply with that id and the last usage; results may come between them. Its text is
  the thought of its calls. `isApiErrorMessage`, or in streams the `error` of an answer of the client, marks an error. A block that repeats or continues one of an earlier line is
  that block: some writers repeat in each line all that there is so far. Some gateways give one id to all answers; another
  `requestId`, or after a result another count of input tokens or an earlier stop reason, begins another reply.
* A user line with tool results becomes these results; `toolUseResult` is the data of its only result. A result that stands
  before its call, which the same turn has, follows it. Other user lines
  are prompts if a person typed them. What the client inserts (`isMeta`, compaction summaries, notifications of tasks and
  of other agents, commands that it runs itself with their output, notices) is a system message, also if it is a block
  beside a prompt, and does not end the turn. `origin` and `isMeta` tell them apart, in older versions whole tags.
  A slash command whose text goes to the model is a prompt: the command as it was typed.
* Text typed while the agent works is queued (`queue-operation`, `enqueue`). If the client passes it to the model in the
  middle of a turn (`remove`, or an attachment `queued_command`), it becomes a user message that does not end the turn,
  with the time of the `remove` if no other line repeats it. A user line follows a `dequeue`; `popAll` returns the text to
  the user's input field. Notifications are queued in the same way.
* A line written again on resume (same `uuid` and content) counts once, even if its other fields changed. History written
  again with new uuids counts once, too: an answer with the `message.id`, blocks and question of an earlier one (without a
  count of tokens the question before that, too), that question, and results that repeat those of answered calls. An id
  that answers to several questions have identifies none.
* Replies of a sub-agent are steps below the call that started it. The `agentId` of the result, in its data or its text, or
  of a progress line, or the prompt, identifies that call. If several calls or sub-agents have the prompt, that is a guess,
  marked in the metadata of the replies (GUESSED_PARENT). Input before the first reply is in its metadata as `prompt` (a list if it has several
  lines); input after a reply is in the metadata of that reply as `told_after`. Progress lines repeat calls and results
  of a sub-agent; they are ignored where the sub-agent's own lines are present. A sub-agent file alone becomes the
  message "agent-<id>" of its session, with the same steps.
* Agents of the client itself, which compact the conversation or suggest a prompt, may repeat the conversation with its tokens:
  what comes before their last input is left out and counted.
* `system` lines with text are system messages; titles and summaries give the title. Bookkeeping lines (file snapshots,
  progress of commands and hooks) are not part of the conversation: they are left out and counted.

A file may be large, so it is read twice; the first reading keeps only numbers of each line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import compress, islice
from operator import not_
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import content, duration, fields, instant, items, rest, text, time_flags
from tracesite_sdk.records.health_flags import STOPPED
from tracesite_sdk.transcripts.documents import Document, Files, Line, Lines, Skip
from tracesite_sdk.transcripts.entries import Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.outline import SHARE
from tracesite_sdk.transcripts.parsing.content_blocks import Blocks, blocks_of, read_blocks

NAME = "claude_code"
GUESSED_PARENT = "parent_call_guessed"
"""Key in the metadata of a step: several calls or sub-agents have the prompt of this one, so its call is a guess."""

_ROLES = ("user", "assistant")
_BLOCKS = ("tool_use", "tool_result")
_TIMESTAMPED = {
    "system": {"uuid", "subtype"},
    "attachment": {"attachment"},
    "progress": {"data"},
    "queue-operation": {"operation"},
}
"""Types of lines, and fields of which such a line has one."""
_PREAMBLE = ("custom-title", "ai-title", "last-prompt", "mode", "permission-mode", "agent-name", "worktree-state")
"""Types of lines that may come in any number before the first message."""
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_SESSION_METADATA = {"summary": "summaries", "result": "results", "agent-name": "agent_names", "tag": "tags", "pr-link": "pr_links", "init": "inits"}  # fmt: skip
_CONTEXT = ("cwd", "version", "gitBranch", "userType", "slug", "entrypoint", "permissionMode")
# Fields with a column or a use of their own; all other fields of a line are kept in metadata.
_LINE_FIELDS = frozenset(
    [*("type", "uuid", "timestamp", "message", "sessionId", "session_id", "toolUseResult", "tool_use_result"),
     *("isSidechain", "agentId", "parent_tool_use_id", "isApiErrorMessage", *_CONTEXT)]
)  # fmt: skip
_MESSAGE_FIELDS = frozenset({"role", "content", "model", "usage", "type", "id"})
_INSERTED_MARKS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isSynthetic")
_LOCAL_COMMAND = re.compile(
    r"<(?:command-name|local-command-\w+|bash-(?:input|stdout|stderr)|user-memory-input)>.*"
    r"</(?:command-\w+|local-command-\w+|bash-(?:input|stdout|stderr)|user-memory-input|skill-format)>\s*",
    re.DOTALL,
)
"""What the client writes for commands that it runs itself, also if somebody typed them: tags with nothing behind."""
_INTERRUPTED = r"\[Request interrupted by user(?: for tool use)?\]\s*"
_INSERTED = re.compile(
    r"<(task-notification|agent-notification|teammate-message|cross-session-message|channel)\b[^>]*>.*</\1>\s*(?:\n.*)?"
    rf"|{_INTERRUPTED}"
    r"|Caveat: The messages below were generated by the user while running local.*"
    r"|This session is being continued from a previous conversation that ran out of context.*",
    re.DOTALL,
)
"""Other text of the client, in lines that do not name their origin. Its advice may follow a notification, on lines of its own."""
_REMINDER = re.compile(r"\s*<(system-reminder|ide_\w+|[\w-]+-hook)>")
"""The start of text of the client that may stand in one text with a prompt."""
_SLASH_COMMAND = re.compile(r"\s*<command-message>[^<]*</command-message>\s*<command-name>([^<]*)</command-name>")
"""A command whose text goes to the model; one that the client runs itself begins with its name."""
_ASIDE_FIELDS = ("content", "isMeta", "attachment")
_QUEUE_OPERATION = "queue-operation"
_ABSORBED = "absorbed_mid_turn"
"""The `reason` of a `remove` that passed the text to the model; older versions give no reason."""
STARTERS = ("Agent", "Task")
"""The names of the tool that starts a sub-agent."""
_OF_CLIENT = re.compile(r"a(?:compact|prompt_suggestion)-[0-9a-f]+")
"""The ids of agents of the client itself."""
_AGENT_ID = re.compile(r"agentId: ([\w-]+)(?: \(.*|[ \t]*)")
"""The line in the result of a sub-agent that names it."""
_LAST_LINES = 8
"""The client's own lines at the end of such a result; the same line before them is what the sub-agent wrote."""
_MAX_COMPARED = 1_000
"""Blocks of an answer that are compared with those of a later line; an answer with more is not repeated in each line."""
_MAX_PER_TYPE = 100
"""Lines of summaries, tags and the like that are kept in the metadata of a session, for each type."""


def recognises(document: Document) -> bool:
    """Return whether one of the first lines is a line of Claude Code."""
    if isinstance(document, Files):
        return False
    values = (
        document.head()
        if isinstance(document, Lines)
        else [line.value for line, _where in islice(_numbered_lines(document), 50)]
    )
    return any(map(_is_line, values)) and not any(map(_is_of_cursor, values))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    skip_once = _Once(skip)
    survey = _Survey(document, skip_once)
    for place, part in enumerate(survey.parts.values()):
        is_whole = part.has_main or not part.agents
        # A document without the main conversation gives the share of each sub-agent.
        for agent in [None] if is_whole else part.agents:
            yield Transcript(
                entries=partial(_entries, document, part, agent, skip_once),
                place=place,
                external_id=part.session_id,
                has_own_ids=part.session_id is not None,
                title=part.title(),
                status="error" if part.has_failed and is_whole else None,
                created_at=None if is_whole else part.began,
                metadata=part.context if is_whole else {},
            )
    for kind, count in (+survey.left_out).items():
        skip("(all)", f"bookkeeping, {kind}: {count} line{'s' * (count > 1)}")


# --- Lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Once:
    """A `skip` that reports each line once, because the lines are read more than once."""

    skip: Skip
    reported: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, where: str, why: str) -> None:
        if (where, why) not in self.reported:
            self.reported.add((where, why))
            self.skip(where, why)


def _numbered_lines(document: Document) -> Iterator[tuple[Line, str]]:
    """Yield the lines of a document with their places in it."""
    if isinstance(document, Lines):
        yield from ((_with_role_as_type(line), f"line {line.number}") for line in document)
        return
    container = "loglines" if isinstance(document, dict) and "loglines" in document else ""
    values = fields(document)["loglines"] if container else document
    for index, value in enumerate(values if isinstance(values, list) else [values]):
        yield _with_role_as_type(Line(index + 1, value)), f"{container}[{index}]"


def _with_role_as_type(line: Line) -> Line:
    """Replace a `type` that names the content block, as some other writers do, by the role of the message."""
    value = line.value
    if not isinstance(value, dict) or value.get("type") not in _BLOCKS:
        return line
    role = fields(value.get("message")).get("role")
    return Line(line.number, {**value, "type": role}) if role in _ROLES else line


def _is_line(value: object) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        return False
    if kind in _ROLES:
        message = value.get("message")
        is_named = "sessionId" in value or "session_id" in value or "uuid" in value or "timestamp" in value
        return isinstance(message, dict) and message.get("role") == kind and "content" in message and is_named
    if kind in _TIMESTAMPED:
        own = value.keys() & _TIMESTAMPED[kind]
        return bool(own) and isinstance(value.get("sessionId"), str) and "timestamp" in value
    if kind in _PREAMBLE:
        return isinstance(value.get("sessionId"), str)
    if kind == "system":
        return isinstance(value.get("session_id"), str) and value.get("subtype") == "init"
    return (kind == "summary" and "leafUuid" in value) or (kind == "file-history-snapshot" and "snapshot" in value)


def _is_of_cursor(value: object) -> bool:
    """Return whether this is a line of Cursor's stream, which is like this one but for the calls."""
    return isinstance(value, dict) and value.get("type") == "tool_call" and isinstance(value.get("tool_call"), dict)


def _unwrapped(value: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the line, or the sub-agent's line inside a progress line, and whether it was inside one."""
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


def _split(line: dict[str, Any], blocks: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the blocks of a user line, or of an attachment, that a person typed, and those that the client inserted."""
    inserted = [_is_inserted(line, block) for block in blocks]
    for block, is_inserted in zip(blocks, inserted, strict=True):
        if not is_inserted and (command := _SLASH_COMMAND.match(_block_text(block))):
            # The other blocks are what the command stands for.
            args = _block_text(block).partition("<command-args>")[2].partition("</command-args>")[0].strip()
            typed = [f"{command[1]} {args}".strip()] if command[1].startswith("/") else []
            return typed, [other for other in blocks if other is not block or not typed]
    return [*compress(blocks, map(not_, inserted))], [*compress(blocks, inserted)]


def _is_inserted(line: dict[str, Any], block: object) -> bool:
    said, origin = _block_text(block).lstrip(), text(fields(line.get("origin")).get("kind"))
    if any(line.get(mark) is True for mark in _INSERTED_MARKS) or line.get("commandMode", "prompt") != "prompt":
        return True
    if _LOCAL_COMMAND.fullmatch(said) or _is_reminder(said) or line.get("sourceToolUseID"):
        return True
    if origin is not None:
        return origin != "human"
    return line.get("promptSource") == "system" or _INSERTED.fullmatch(said) is not None


def _is_reminder(said: str) -> bool:
    """Return whether a text consists of reminders."""
    end = 0
    while (start := _REMINDER.match(said, end)) is not None:
        closed = said.find(f"</{start[1]}>", start.end())
        if closed < 0:
            return False
        end = closed + len(start[1]) + 3
    return end > 0 and not said[end:].strip()


def _is_typed(line: dict[str, Any]) -> bool:
    """Return whether a person typed a part of a user line."""
    return bool(_split(line, _prompt_blocks(line))[0])


def _block_text(block: object) -> str:
    value = block if isinstance(block, str) else fields(block).get("text")
    return value if isinstance(value, str) else ""


def _hash(*texts: str) -> int:
    """Return 64 bits that stand for texts."""
    return int.from_bytes(blake2b("\0".join(texts).encode("utf-8", "backslashreplace"), digest_size=8).digest())


def _block_digests(message: dict[str, Any]) -> list[int]:
    """Return a digest of each block of a message, with its id.

    A line that the client writes again on resume may have more fields around the content than the first one. They are
    not compared, and null equals a missing field.
    """
    return [_block_digest(message.get("id"), block) for block in blocks_of(message.get("content"))]


def _block_digest(message_id: object, block: object) -> int:
    if isinstance(block, dict):
        block = {name: item for name, item in block.items() if item is not None}
    try:
        encoded = msgspec.json.encode([message_id, block], order="sorted")
    except (RecursionError, UnicodeEncodeError):
        return 0
    return int.from_bytes(blake2b(encoded, digest_size=8).digest())


def _call_ids(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in items(message.get("content")):
        if isinstance(block, dict) and block.get("type") == "tool_use" and (id_ := text(block.get("id"))):
            yield id_, block


# --- First reading ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Part:
    """The part of one session that a document holds."""

    session_id: str | None
    first: int
    last: int
    """The indexes of its first and last lines."""
    has_main: bool = False
    agents: dict[str, bool] = field(default_factory=dict)
    """Sub-agents, and whether they have lines of their own."""
    parents: dict[str, str] = field(default_factory=dict)
    """The call that started each sub-agent."""
    named: dict[str, str] = field(default_factory=dict)
    """Of these the sub-agents that only the text of a result names, by the call."""
    guessed: set[str] = field(default_factory=set)
    """Of these the sub-agents whose call is a guess."""
    ends: dict[int, int] = field(default_factory=dict)
    """The last line of an API message of several lines, by the first line."""
    left_out: set[int] = field(default_factory=set)
    """Lines that repeat an earlier one."""
    early: set[tuple[int, str]] = field(default_factory=set)
    """The lines of results that stand before their calls, and the calls."""
    absorbed: dict[int, int] = field(default_factory=dict)
    """The line where the client passed queued text to the model, by the line where the user typed it."""
    renamed: dict[int, int] = field(default_factory=dict)
    """Lines with the uuid of an earlier line and other content, numbered."""
    context: dict[str, Any] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    leaves: list[tuple[int, str]] = field(default_factory=list)
    uuids: dict[int, int] = field(default_factory=dict)
    last_of: dict[str | None, int] = field(default_factory=dict)
    """The last line of the main conversation (None) and of each sub-agent."""
    has_failed: bool = False
    began: datetime | None = None
    """The first time of a prompt or an answer. It includes the prompt of a sub-agent, which becomes no entry."""

    def title(self) -> str | None:
        title = next((self.titles[kind] for kind in _TITLES if kind in self.titles), None)
        # A summary may belong to another session, which this one continues.
        return title or next((summary for leaf, summary in reversed(self.leaves) if leaf in self.uuids), None)


class _Survey:
    """The first reading: assigns the lines of a document to sessions, sub-agents and API messages."""

    def __init__(self, document: Document, skip: Skip) -> None:
        self.parts: dict[str | None, _Part] = {}
        self.left_out: Counter[str] = Counter()
        self._skip = skip
        self._session_id: str | None = None
        self._sidechains = _Sidechains()
        self._histories: dict[tuple[str | None, str | None], _History] = {}
        """What was written, by session and agent."""
        self._open: dict[tuple[str | None, str | None], dict[str, _Open]] = {}
        """The API messages that may continue, by session and agent."""
        self._results: Counter[tuple[str | None, str | None]] = Counter()
        """The number of lines with results, by session and agent."""
        self._prompts: dict[tuple[str | None, int], list[str]] = {}
        """The calls that start a sub-agent with a prompt, by session and its hash."""
        self._prompted: dict[tuple[str | None, str], tuple[int, bool]] = {}
        """The hash of the prompt of each sub-agent, and whether its lines name it, by session and sub-agent."""
        self._early: defaultdict[tuple[str | None, str | None], dict[str, int]] = defaultdict(dict)
        """The lines of results without a call in the current turn, by session and agent, and call."""
        self._starts: set[str] = set()
        """These calls."""
        self._named: list[tuple[_Part, str, str]] = []
        """The sub-agents that the text of a result names, with the call."""
        self._own: set[int] = set()
        """Hashes of the calls and results that have a line outside of progress lines."""
        self._repeated: list[tuple[_Part, int, str, list[int]]] = []
        self._queues: dict[str | None, _Queue] = {}
        """Typed-ahead text by session."""
        self._last_replies: dict[tuple[str | None, str], int] = {}
        """The first line of the last reply of a sub-agent, by session and sub-agent."""
        self._session_lines: list[tuple[str, dict[str, Any]]] = []
        self._of_client: defaultdict[str, list[tuple[int, dict[str, Any], str]]] = defaultdict(list)
        """The lines of each agent of the client since its last input."""
        self._repeated_by_client: set[int] = set()
        self._is_over = False
        for ordinal, (line, where) in enumerate(_numbered_lines(document)):
            if isinstance(line.value, dict):
                self._add_line(ordinal, line.value, where)
            else:
                skip(where, "not an object")
        self._add_held()
        self._drop_repeated()
        self._match_prompts()
        self._apply_session_lines()

    def _add_line(self, ordinal: int, value: dict[str, Any], where: str) -> None:
        kind = value.get("type")
        line, is_repeated = _unwrapped(value)
        if self._holds(ordinal, value, line, where):
            return
        if kind in _ROLES or is_repeated:
            if line.get("type") in _ROLES and isinstance(line.get("message"), dict):
                self._add_message(ordinal, line, where, is_repeated)
            else:
                self._skip(where, "no message")
        elif kind == _QUEUE_OPERATION:
            self._queues.setdefault(_session_of(value) or self._session_id, _Queue()).add(ordinal, value)
            self.left_out[_QUEUE_OPERATION] += 1
        elif isinstance(kind, str) and (kind in _TITLES or kind in _SESSION_METADATA):
            self._session_lines.append((kind, value))
        elif kind == "system" and value.get("subtype") == "init":
            self._session_lines.append(("init", value))
        elif (aside := _aside_of(value)) is not None:
            part = self._part(_session_of(value), ordinal)
            if (agent := self._sidechains.agent_of(value)) is not None:
                self._end_last_reply(part, ordinal, agent)
            elif kind == "attachment" and (queue := self._queues.get(part.session_id)):
                queue.forget(_text_of({"content": aside}))
        elif isinstance(kind, str):
            subtype = value.get("subtype") or fields(value.get("data")).get("type") or fields(value.get("attachment")).get("type")  # fmt: skip
            self.left_out[f"{kind} {subtype}" if isinstance(subtype, str) else kind] += 1
        else:
            self._skip(where, "no type")

    def _holds(self, ordinal: int, value: dict[str, Any], line: dict[str, Any], where: str) -> bool:
        """Hold a line of an agent of the client until it is known that no input follows, which makes it a repetition."""
        agent = text(line.get("agentId")) or ""
        if self._is_over or _OF_CLIENT.fullmatch(agent) is None:
            return False
        held = self._of_client[agent]
        if line.get("type") == "user" and isinstance(line.get("message"), dict) and _has_prompt(line):
            self._repeated_by_client.update(ordinal for ordinal, _value, _where in held)
            held.clear()
        held.append((ordinal, value, where))
        return True

    def _add_held(self) -> None:
        self._is_over = True
        for ordinal, value, where in (line for lines in self._of_client.values() for line in lines):
            self._add_line(ordinal, value, where)
        if self._repeated_by_client:
            self.left_out["the conversation, repeated by an agent of the client"] = len(self._repeated_by_client)
        for part in self.parts.values():
            part.left_out |= self._repeated_by_client

    def _part(self, session_id: str | None, ordinal: int) -> _Part:
        if session_id is not None:
            self._session_id = session_id
        part = self.parts.setdefault(self._session_id, _Part(self._session_id, ordinal, ordinal))
        part.last = max(part.last, ordinal)
        return part

    def _add_message(self, ordinal: int, line: dict[str, Any], where: str, is_repeated: bool) -> None:
        part = self._part(_session_of(line), ordinal)
        message, agent = line["message"], self._sidechains.agent_of(line)
        parent = text(line.get("parent_tool_use_id"))
        part.began = part.began or instant(line.get("timestamp"))
        part.has_main = part.has_main or agent is None or is_repeated
        if agent is None:
            for key in _CONTEXT:
                if line.get(key) and key not in part.context:
                    part.context[key] = line[key]
        else:
            if agent not in part.agents:
                self._prompted[part.session_id, agent] = _hash(_text_of(message)), bool(line.get("agentId"))
            part.agents[agent] = part.agents.get(agent, False) or not is_repeated
            if parent is not None:
                part.parents.setdefault(agent, parent)
        hashes = [_hash("call", id_) for id_, _block in _call_ids(message)] + [
            _hash("result", text(fields(block).get("tool_use_id")) or "") for block in items(message.get("content"))
            if fields(block).get("type") == "tool_result"
        ]  # fmt: skip
        digests = _block_digests(message)
        if is_repeated and agent is not None:
            self._repeated.append((part, ordinal, agent, hashes))
        elif self._is_first(part, ordinal, line, where, digests):
            history = self._histories.setdefault((part.session_id, agent), _History())
            for repeated, place in history.repeated_lines(ordinal, line, where, digests).items():
                part.left_out.add(repeated)
                self._skip(place, "written again: an earlier line is the same")
            if ordinal in part.left_out:
                return
            self._own.update(hashes)
        else:
            return
        self._group_lines(part, ordinal, agent, line, digests)
        if agent is None and not is_repeated and (queue := self._queues.get(part.session_id)):
            self._resolve_queued(part, queue, line)
        for id_, block in _call_ids(message):
            prompt = fields(block.get("input")).get("prompt")
            if block.get("name") in STARTERS and isinstance(prompt, str):
                self._prompts.setdefault((part.session_id, _hash(prompt.strip())), []).append(id_)
                self._starts.add(id_)
            if (early := self._early[part.session_id, agent].pop(id_, None)) is not None:
                part.early.add((early, id_))
        results = [block for block in items(message.get("content")) if text(fields(block).get("tool_use_id"))]
        for call_id in (text(block["tool_use_id"]) or "" for block in results):
            if _hash("call", call_id) not in self._own:
                self._early[part.session_id, agent][call_id] = ordinal
        if (started := text(fields(line.get("toolUseResult")).get("agentId"))) and len(results) == 1:
            part.parents.setdefault(started, text(results[0]["tool_use_id"]) or "")
            return
        for block in results:
            call_id = text(block["tool_use_id"]) or ""
            if call_id in self._starts and (name := _agent_in(block)) is not None:
                self._named.append((part, name, call_id))

    def _is_first(self, part: _Part, ordinal: int, line: dict[str, Any], where: str, digests: list[int]) -> bool:
        uuid = text(line.get("uuid"))
        if uuid is None:
            return True
        uuid_hash, content_hash = _hash(uuid), _hash(*map(str, digests))
        if uuid_hash not in part.uuids:
            part.uuids[uuid_hash] = content_hash
        elif part.uuids[uuid_hash] == content_hash or _hash(uuid, str(content_hash)) in part.uuids:
            part.left_out.add(ordinal)
            self._skip(where, "duplicate of an earlier line")
            return False
        else:
            part.uuids[_hash(uuid, str(content_hash))] = content_hash
            part.renamed[ordinal] = len(part.renamed) + 1
        return True

    def _group_lines(
        self, part: _Part, ordinal: int, agent: str | None, line: dict[str, Any], digests: list[int]
    ) -> None:
        """Note which lines are one API message; a prompt ends all open messages of its agent.

        Input of a sub-agent after a reply is stored with that reply, so the reply ends there.
        """
        part.last_of[agent] = ordinal
        if line["type"] == "assistant":
            first = ordinal
            if id_ := text(line["message"].get("id")):
                opened = self._open.setdefault((part.session_id, agent), {})
                results = self._results[part.session_id, agent]
                if id_ not in opened or not opened[id_].continues(line, digests, results):
                    opened[id_] = _Open(ordinal)
                opened[id_].add(line, digests, results)
                first = opened[id_].first
                if first != ordinal:
                    part.ends[first] = ordinal
            if agent is not None:
                self._last_replies[part.session_id, agent] = first
            return
        self._results[part.session_id, agent] += not _has_prompt(line)
        if _is_typed(line):
            self._open.pop((part.session_id, agent), None)
            self._early.pop((part.session_id, agent), None)
        if agent is not None and _has_prompt(line):
            self._end_last_reply(part, ordinal, agent)

    def _end_last_reply(self, part: _Part, ordinal: int, agent: str) -> None:
        """Let the last reply of a sub-agent end at this input, which is stored with it."""
        replied = self._last_replies.get((part.session_id, agent))
        if replied is not None:
            part.ends[replied] = ordinal

    def _resolve_queued(self, part: _Part, queue: _Queue, line: dict[str, Any]) -> None:
        """Decide about queued text by the next line of the main conversation."""
        if line["type"] == "user":
            if _has_prompt(line):
                queue.forget(_text_of(line["message"]))
            return
        absorbed = queue.take_absorbed(text(line["message"].get("id")))
        part.absorbed.update(absorbed)
        self.left_out[_QUEUE_OPERATION] -= 2 * len(absorbed)

    def _drop_repeated(self) -> None:
        """Leave out the progress lines whose calls and results are also in the sub-agent's own lines."""
        for part, ordinal, agent, hashes in self._repeated:
            if self._own.issuperset(hashes) if hashes else part.agents[agent]:
                part.left_out.add(ordinal)

    def _match_prompts(self) -> None:
        """Find the calls of sub-agents: by the text of results, else by their prompts."""
        for part, agent, call in self._named:
            prompt, _has_id = self._prompted.get((part.session_id, agent), (0, True))
            like = self._prompts.get((part.session_id, prompt))
            if like is None or call in like:
                part.parents.setdefault(agent, call)
                part.named[call] = agent
        sharing = Counter(
            (session, prompt)
            for (session, agent), (prompt, _has_id) in self._prompted.items()
            if agent not in self.parts[session].parents
        )
        for (session, agent), (prompt, has_id) in self._prompted.items():
            part = self.parts[session]
            # A sub-agent without an id may be the one that a result names.
            named = {
                call
                for other, call in part.parents.items()
                if other not in part.guessed and (has_id or other in part.agents)
            }
            like = [call for call in self._prompts.get((session, prompt), ()) if call not in named]
            taken = {part.parents.get(other) for other in part.agents}
            free = [call for call in like if call not in taken]
            if agent not in part.parents and free:
                part.parents[agent] = free[0]
                if len(like) > 1 or sharing[session, prompt] > 1:
                    part.guessed.add(agent)

    def _apply_session_lines(self) -> None:
        for kind, value in self._session_lines:
            part = self.parts.get(_session_of(value)) or next(iter(self.parts.values()), None)
            if part is None:
                self.left_out[kind] += 1
            elif kind in _TITLES:
                if isinstance(title := value.get(_TITLES[kind]), str):
                    part.titles[kind] = title
            else:
                leaf, summary = text(value.get("leafUuid")), value.get("summary")
                if leaf and isinstance(summary, str):
                    owner = next((other for other in self.parts.values() if _hash(leaf) in other.uuids), part)
                    owner.leaves.append((_hash(leaf), summary))
                part.has_failed = value.get("is_error") is True if kind == "result" else part.has_failed
                kept = part.context.setdefault(_SESSION_METADATA[kind], [])
                if len(kept) < _MAX_PER_TYPE:
                    kept.append(rest(value, ("type", "sessionId", "session_id")))


@dataclass(eq=False)
class _Open:
    """An API message that may continue."""

    first: int
    request: object = None
    input: float = 0
    has_stopped: bool = False
    results: int = 0
    """The number of results before its last line."""
    blocks: set[int] = field(default_factory=set)

    def continues(self, line: dict[str, Any], digests: list[int], results: int) -> bool:
        """Return whether a line with the same id is a part of this message."""
        if self.request and line.get("requestId") and self.request != line["requestId"]:
            return False
        if self.results == results or self.blocks.issuperset(digests):
            return True
        counted = _input_tokens(line["message"])
        return not self.has_stopped and not (self.input and counted and self.input != counted)

    def add(self, line: dict[str, Any], digests: list[int], results: int) -> None:
        self.request = line.get("requestId") or self.request
        self.input = _input_tokens(line["message"]) or self.input
        self.has_stopped = self.has_stopped or bool(line["message"].get("stop_reason"))
        self.results = results
        self.blocks.update(digests)


def _input_tokens(message: dict[str, Any]) -> float:
    usage = fields(message.get("usage"))
    counts = [usage.get(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    return sum(count for count in counts if isinstance(count, int | float))


_NO_REQUEST = _hash("")


@dataclass(eq=False)
class _History:
    """What was written of one conversation, by which a part of it that is written again under new uuids is known."""

    question: int = 0
    """The hash of the last question."""
    before: int = 0
    """That of the question before it."""
    first: int = -1
    """Its first line."""
    unanswered: dict[int, str] = field(default_factory=dict)
    """Its lines and their places, until it has an answer that is not a repetition."""
    is_answered: bool = False
    written: dict[int, tuple[int, int, int, int, float]] = field(default_factory=dict)
    """Each block of an answer: its question, the one before, the first line of its own, the hash of the request, and the
    input tokens."""
    asked: dict[int, int] = field(default_factory=dict)
    """The first line of the question that an answer with this id has, by the hash of the id."""
    shared: set[int] = field(default_factory=set)
    """Ids that answers to several questions have, as behind some gateways: they identify no answer."""
    open_calls: set[str] = field(default_factory=set)
    results: set[int] = field(default_factory=set)

    def repeated_lines(self, ordinal: int, line: dict[str, Any], where: str, digests: list[int]) -> dict[int, str]:
        """Return this line if it was written again, with the question that it answers, and their places."""
        message = line["message"]
        if line.get("type") == "assistant":
            repeated = {**self.unanswered, ordinal: where} if self._is_answer_again(line, digests) else {}
            self.is_answered, self.unanswered = True, {}
            return repeated
        if _is_typed(line):
            if self.is_answered or self.first < 0:
                self.before, self.question, self.first, self.is_answered = self.question, 0, ordinal, False
            self.question = _hash(str(self.question), _text_of(message))
            self.unanswered[ordinal] = where
        return {ordinal: where} if not _has_prompt(line) and self._is_result_again(message, digests) else {}

    def _is_result_again(self, message: dict[str, Any], digests: list[int]) -> bool:
        called = {text(fields(block).get("tool_use_id")) or "" for block in items(message.get("content"))}
        is_again = bool(digests) and self.results.issuperset(digests) and self.open_calls.isdisjoint(called)
        self.results.update(digests)
        self.open_calls -= called
        return is_again

    def _is_answer_again(self, line: dict[str, Any], digests: list[int]) -> bool:
        request, counted = _hash(text(line.get("requestId")) or ""), _input_tokens(line["message"])
        earlier = [self.written.get(digest) for digest in digests]
        id_ = _hash(text(line["message"].get("id")) or "")
        if (
            text(line["message"].get("id"))
            and id_ not in self.shared
            and digests
            and all(
                block is not None
                # A stream may repeat the answers without the questions.
                and (block[0] == self.question or (self.is_answered and counted and counted == block[4]))
                # Without a count the same short answer to "continue" may be another one.
                and (counted or block[1] == self.before)
                and block[2] != self.first
                and (request == block[3] or _NO_REQUEST in (request, block[3]))
                and not (counted and block[4] and counted != block[4])
                for block in earlier
            )
        ):
            return True
        if None in earlier:
            self.open_calls.update(id_ for id_, _block in _call_ids(line["message"]))
        if self.asked.setdefault(id_, self.first) != self.first:
            self.shared.add(id_)
        self.written |= dict.fromkeys(digests, (self.question, self.before, self.first, request, counted))
        return False


class _Sidechains:
    """Finds the sub-agent of a line: by its own fields, else by the line that it follows."""

    def __init__(self) -> None:
        self._roots: dict[int, str] = {}

    def agent_of(self, line: dict[str, Any]) -> str | None:
        """Return the id of the sub-agent; None for the main conversation."""
        agent = text(line.get("agentId")) if line.get("isSidechain") else None
        agent = agent or text(line.get("parent_tool_use_id"))
        if agent or not line.get("isSidechain"):
            return agent
        uuid, parent = text(line.get("uuid")) or "", text(line.get("parentUuid"))
        agent = (self._roots.get(_hash(parent), uuid) if parent else uuid) or "unnamed"
        self._roots[_hash(uuid)] = agent
        return agent


@dataclass(eq=False)
class _Queue:
    """Text that came while the agent worked, until it is used, repeated or withdrawn."""

    waiting: list[tuple[int, str]] = field(default_factory=list)
    """The line with the `enqueue`, and the text ("" if another line has it)."""
    removed: list[tuple[int, int, str]] = field(default_factory=list)
    """The line with the `enqueue`, the line with the `remove`, and the text."""
    answering: str | None = None
    """The id of the last API message: it began before a `remove` that follows its first line."""

    def add(self, ordinal: int, value: dict[str, Any]) -> None:
        operation, typed = value.get("operation"), _text_of(value)
        if operation == "enqueue":
            self.waiting.append((ordinal, typed))
        elif operation == "popAll":
            self.waiting.clear()
        elif operation in ("remove", "dequeue") and self.waiting:
            # Newer versions name the text. Without it the operation takes the first one, as in any queue.
            item = next((item for item in self.waiting if typed and item[1] == typed), self.waiting[0])
            self.waiting.remove(item)
            if operation == "remove" and item[1] and value.get("reason", _ABSORBED) == _ABSORBED:
                self.removed.append((item[0], ordinal, item[1]))

    def forget(self, prompt: str) -> None:
        """Drop queued text that another line repeats."""
        for index, (_typed_at, _removed_at, queued) in enumerate(self.removed):
            if _is_same(queued, prompt):
                del self.removed[index]
                return
        for index, (typed_at, queued) in enumerate(self.waiting):
            if _is_same(queued, prompt):
                # A later `remove` or `dequeue` still takes the item out of the queue.
                self.waiting[index] = (typed_at, "")
                return

    def take_absorbed(self, answer: str | None) -> dict[int, int]:
        """Return the text removed before the model began this answer; by now no line can repeat it."""
        if answer is not None and answer == self.answering:
            return {}
        self.answering = answer
        absorbed = {typed_at: removed_at for typed_at, removed_at, _queued in self.removed}
        self.removed.clear()
        return absorbed


def _is_same(queued: str, prompt: str) -> bool:
    """Return whether a prompt is the queued text; the prompt of a client command has its name in a tag."""
    if not queued:
        return False
    return queued == prompt or (
        queued.startswith("/") and f"<command-name>{queued.split()[0]}</command-name>" in prompt
    )


def _has_prompt(line: dict[str, Any]) -> bool:
    """Return whether a user line has blocks other than tool results."""
    return bool(_prompt_blocks(line))


def _prompt_blocks(line: dict[str, Any]) -> list[Any]:
    return [
        block
        for block in blocks_of(line["message"].get("content"))
        if not (isinstance(block, dict) and block.get("type") == "tool_result")
    ]


def _text_of(message: dict[str, Any]) -> str:
    """Return the text of a prompt."""
    content = message.get("content")
    if isinstance(content, str):
        return content.strip()
    texts = [fields(block).get("text") for block in items(content)]
    return "\n".join(item for item in texts if isinstance(item, str)).strip()


def _agent_in(result: dict[str, Any]) -> str | None:
    """Return the sub-agent that the last lines of a result name."""
    said = [_block_text(block) for block in blocks_of(result.get("content")) if _is_said(block)]
    lines = said[-1].rstrip().splitlines()[-_LAST_LINES:] if said else []
    return next((found[1] for line in reversed(lines) if (found := _AGENT_ID.fullmatch(line))), None)


def _aside_of(value: dict[str, Any]) -> str | list[Any] | None:
    """Return the content of a line that is a message, but not one of the API."""
    kind, said = value.get("type"), value.get("content")
    if kind == "system" and isinstance(said, str) and said:
        return said
    attachment = fields(value.get("attachment"))
    if kind == "attachment" and attachment.get("type") == "queued_command" and attachment.get("prompt"):
        return content(attachment["prompt"])
    return None


# --- Second reading ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Answer:
    """A reply that is being collected from the lines of its API message."""

    key: tuple[str | None, str | None]
    """The agent and the id of the API message."""
    reply: Reply
    blocks: Blocks
    end: int

    def add(self, blocks: Blocks, usage: object, stop_reason: object, at: datetime | None) -> list[Result]:
        """Add the blocks of a line, and return the results that no earlier line has."""
        self.blocks.visible = _joined(self.blocks.visible, blocks.visible)
        self.blocks.reasoning = _joined(self.blocks.reasoning, blocks.reasoning)
        for call in blocks.calls:
            # Call ids are unique in an answer: another block with the same id is the same call, written again.
            known = next((at for at, other in enumerate(self.blocks.calls) if call.id and other.id == call.id), None)
            if known is None:
                self.blocks.calls.append(call)
            elif call.args:
                self.blocks.calls[known] = replace(call, started_at=self.blocks.calls[known].started_at)
        answered = {call_id for result in self.blocks.results for call_id in result.call_ids}
        results = [result for result in blocks.results if not answered.issuperset(result.call_ids)]
        self.blocks.results += results
        for name, value in blocks.metadata.items():
            earlier = self.blocks.metadata.get(name, [])
            self.blocks.metadata[name] = [*earlier, *(item for item in value if item not in earlier)]
        if stop_reason:
            self.blocks.metadata["stop_reason"] = stop_reason
        if at is not None:
            self.reply = replace(self.reply, ended_at=max(self.reply.ended_at or at, at))
        if isinstance(usage, dict) and _output_tokens(usage) >= _output_tokens(self.reply.usage or {}):
            # Each line has the usage so far, so the last one counts.
            self.reply = replace(self.reply, usage=usage)
        return results

    def finished(self) -> Reply:
        return replace(
            self.reply,
            content=self.blocks.content,
            reasoning=self.blocks.thought,
            calls=self.blocks.calls,
            metadata={**self.reply.metadata, **self.blocks.metadata},
        )


def _joined(blocks: list[Any], more: list[Any]) -> list[Any]:
    """Return the blocks of an answer with those of a later line, of which some may repeat or continue earlier ones."""
    if len(blocks) > _MAX_COMPARED:
        return blocks + more
    joined, unmatched = list(blocks), list(range(len(blocks)))
    for block in more:
        at = next((index for index in unmatched if joined[index] == block), None)
        if at is None and (begun := [index for index in unmatched if _is_said(joined[index])]) and _is_said(block):
            at = begun[-1] if _block_text(block).startswith(_block_text(joined[begun[-1]])) else None
        if at is None:
            joined.append(block)
        else:
            joined[at] = block
            unmatched.remove(at)
    return joined


def _is_said(block: object) -> bool:
    return isinstance(block, str) or fields(block).get("type") == "text"


def _output_tokens(usage: dict[str, Any]) -> float:
    count = usage.get("output_tokens")
    return count if isinstance(count, int | float) else 0


def _entries(document: Document, part: _Part, agent: str | None, skip: Skip) -> Iterator[Entry]:
    entries = _Reader(part, agent, skip).entries(document)
    if agent is None:
        yield from entries
        return
    first = next(entries, None)
    if first is not None:
        yield replace(first, id=f"{SHARE}{agent}")
    yield from entries


class _Reader:
    """The second reading: yields the entries of one part in the order of their first lines."""

    def __init__(self, part: _Part, agent: str | None, skip: Skip) -> None:
        self._part = part
        self._only = agent
        self._skip = skip
        self._sidechains = _Sidechains()
        self._session_id: str | None = None
        self._waiting: list[Entry | _Answer] = []
        """Entries behind an answer whose last line was not read yet."""
        self._open: dict[tuple[str | None, str | None], _Answer] = {}
        self._prompts: dict[str, list[Any]] = {}
        """Input of sub-agents before their next replies."""
        self._last_replies: dict[str, _Answer] = {}
        """The last reply of each sub-agent, until it is yielded."""
        self._early: dict[tuple[str | None, str], Result] = {}
        """Results that stand before their calls, by agent and call."""
        self._named: set[tuple[str | None, str | None]] = set()
        """The agents and ids of the replies so far: an id may not be unique."""
        self._typed: dict[int, dict[str, Any]] = {}
        """Lines with queued text, by the line where the model received it."""

    def entries(self, document: Document) -> Iterator[Entry]:
        for ordinal, (line, where) in enumerate(_numbered_lines(document)):
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
            # An answer with thinking only, at the end of its agent's lines, may still become a call or text.
            is_last = item.end == self._part.last_of.get(agent)
            if not is_last or item.reply.error or item.blocks.calls or any(map(_is_visible, item.blocks.visible)):
                yield item.finished()

    def _read(self, ordinal: int, value: dict[str, Any], where: str) -> None:
        line, is_repeated = _unwrapped(value)
        if value.get("type") == _QUEUE_OPERATION:
            self._queue(ordinal, value)
            return
        is_message = (value.get("type") in _ROLES or is_repeated) and isinstance(line.get("message"), dict)
        if not is_message and _aside_of(value) is None:
            return
        self._session_id = _session_of(line) or self._session_id
        if self._session_id != self._part.session_id or ordinal in self._part.left_out:
            return
        time = line.get("timestamp")
        agent = self._sidechains.agent_of(line)
        if not is_message:
            if agent is not None and self._only in (None, agent):
                self._tell(agent, _aside_of(value))
            elif self._only is None:
                self._put_aside(ordinal, value, time)
            return
        if self._only is not None and agent != self._only:
            return
        if line.get("type") == "assistant":
            self._reply(ordinal, line, agent, where, is_repeated=is_repeated)
        elif line.get("type") == "user":
            self._user(ordinal, line, agent, where)

    def _queue(self, ordinal: int, value: dict[str, Any]) -> None:
        """Add text that was typed in the middle of a turn, at the line where the model received it."""
        if ordinal in self._part.absorbed:
            self._typed[self._part.absorbed[ordinal]] = value
        elif (typed := self._typed.pop(ordinal, None)) is not None and self._only is None:
            id_ = f"queued-{_hash(str(typed.get('timestamp')), _text_of(typed)):016x}"
            metadata = rest({"queued_at": typed.get("timestamp")}, ())
            self._add_prompts(id_, typed, content(typed["content"]), value.get("timestamp"), metadata, is_aside=True)

    def _put_aside(self, ordinal: int, value: dict[str, Any], time: object) -> None:
        id_, said, metadata = self._id(ordinal, value), _aside_of(value), rest(value, {*_LINE_FIELDS, *_ASIDE_FIELDS})
        if value["type"] == "attachment":
            attachment = fields(value["attachment"])
            metadata |= rest(attachment, ("type", "prompt"))
            self._add_prompts(id_, {**value, **attachment}, said, time, metadata, is_aside=True)
            return
        at, flags = instant(time), time_flags(time)
        self._waiting.append(
            Prompt(id=id_, role="system", content=said, created_at=at, health=flags, is_aside=True, metadata=metadata)
        )

    def _add_prompts(
        self, id_: str, line: dict[str, Any], said: Any, time: object, metadata: dict[str, Any], *, is_aside: bool
    ) -> None:
        """Add what a person typed as a message of the user, and what the client inserted as one of the system."""
        blocks = blocks_of(said)
        typed, inserted = _split(line, blocks)
        at, flags = instant(time), time_flags(time)
        if typed or not inserted:
            own = said if typed == blocks else Blocks(visible=typed).content
            self._waiting.append(
                Prompt(
                    id=id_, role="user", content=own, created_at=at, health=flags, is_aside=is_aside, metadata=metadata
                )
            )
        if inserted:
            own = said if inserted == blocks else Blocks(visible=inserted).content
            if any(re.fullmatch(_INTERRUPTED, _block_text(block).lstrip()) for block in inserted):
                flags = [*flags, STOPPED]
            metadata = {"role": "user", **({} if typed else metadata)}
            id_ = f"{id_}#added" if typed else id_
            self._waiting.append(
                Prompt(
                    id=id_, role="system", content=own, created_at=at, health=flags, is_aside=True, metadata=metadata
                )
            )

    def _id(self, ordinal: int, line: dict[str, Any]) -> str:
        uuid = text(line.get("uuid"))
        if uuid is None:
            return str(ordinal)
        return f"{uuid}/{self._part.renamed[ordinal]}" if ordinal in self._part.renamed else uuid

    def _extra_fields(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the fields without a column, and the context fields that differ from those of the session."""
        changed = {
            name: line[name] for name in _CONTEXT if line.get(name) and line[name] != self._part.context.get(name)
        }
        return {**rest(line, _LINE_FIELDS), **rest(line["message"], _MESSAGE_FIELDS), **changed}

    def _user(self, ordinal: int, line: dict[str, Any], agent: str | None, where: str) -> None:
        id_, time = self._id(ordinal, line), line.get("timestamp")
        blocks = read_blocks(line["message"].get("content"), id_, f"{where}: content", self._skip)
        metadata = {**self._extra_fields(line), **blocks.metadata}
        at, flags = instant(time), time_flags(time)
        results = [replace(result, created_at=at, health=flags) for result in blocks.results]
        if len(results) == 1:
            results = [_with_data(results[0], line.get("toolUseResult", line.get("tool_use_result")))]
            if agent is not None:
                # Progress lines have no duration, so both sources give the times only.
                results = [replace(results[0], duration=None)]
        elif data := line.get("toolUseResult"):
            metadata["toolUseResult"] = data
        results = [
            replace(result, data={"agentId": started})
            if result.data is None and (started := self._part.named.get(next(iter(result.call_ids), "")))
            else result
            for result in results
        ]
        if results and blocks.content is None:
            results[0] = replace(results[0], metadata={**results[0].metadata, **metadata})
        for result in results:
            if (ordinal, call_id := next(iter(result.call_ids), "")) in self._part.early:
                self._early[agent, call_id] = result
            else:
                self._waiting.append(result)
        if blocks.content is None and results:
            return
        if agent is not None:
            self._tell(agent, blocks.content)
            return
        self._add_prompts(id_, line, blocks.content, time, metadata, is_aside=False)

    def _tell(self, agent: str, said: Any) -> None:
        """Keep the input of a sub-agent with its last reply, else for its first one."""
        if (last := self._last_replies.get(agent)) is not None:
            last.reply.metadata.setdefault("told_after", []).append(said)
        else:
            self._prompts.setdefault(agent, []).append(said)

    def _reply(self, ordinal: int, line: dict[str, Any], agent: str | None, where: str, *, is_repeated: bool) -> None:
        message, time = line["message"], line.get("timestamp")
        id_, own_id = self._id(ordinal, line), text(message.get("id"))
        blocks = read_blocks(message.get("content"), id_, f"{where}: content", self._skip)
        at, flags = instant(time), time_flags(time)
        blocks.calls = [replace(call, started_at=at) for call in blocks.calls]
        answer = self._open.get((agent, own_id)) if own_id else None
        if answer is None or ordinal > answer.end:
            metadata = self._extra_fields(line)
            model = text(message.get("model"))
            if own_id:
                metadata["message_id"] = own_id
            if model and model.startswith("<"):  # written by the client: no request, and its usage is zeros
                metadata["model"], model = model, None
            if is_repeated:
                # Progress lines omit text, so their time and usage may not be those of the reply; the sub-agent's
                # file has the right ones.
                metadata["progress"] = rest({"timestamp": time, "usage": message.get("usage")}, ())
            if agent in self._part.guessed:
                metadata[GUESSED_PARENT] = True
            if agent is not None and (prompts := self._prompts.pop(agent, None)):
                metadata["prompt"] = prompts[0] if len(prompts) == 1 else prompts
            is_first = own_id is not None and (agent, own_id) not in self._named
            self._named.add((agent, own_id))
            answer = _Answer(
                (agent, own_id),
                Reply(
                    id=id_,
                    content=None,
                    agent_name=agent,
                    model=model,
                    created_at=None if is_repeated else at,
                    step_id=own_id if is_first else id_ if self._part.session_id else None,
                    parent_call=self._part.parents.get(agent, "") if agent is not None else None,
                    error=_error_of(line),
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
        results = answer.add(
            blocks,
            None if is_repeated or "model" in answer.reply.metadata else message.get("usage"),
            message.get("stop_reason"),
            None if is_repeated else at,
        )
        self._waiting += [replace(result, created_at=at, health=flags) for result in results]
        early = [self._early.pop((agent, call.id or ""), None) for call in blocks.calls]
        self._waiting += [result for result in early if result is not None]


def _error_of(line: dict[str, Any]) -> str | None:
    """Return the error that an answer stands for; streams name it without the mark of files."""
    is_of_client = (text(line["message"].get("model")) or "").startswith("<")
    if line.get("isApiErrorMessage") is True or (is_of_client and line.get("error")):
        return _text_of(line["message"]) or text(line.get("error")) or "API error"
    return None


def _is_visible(block: object) -> bool:
    """Return whether a block is anything but blank text, with which some answers begin."""
    content = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
    return not isinstance(content, str) or bool(content.strip())


def _with_data(result: Result, data: object) -> Result:
    """Add Claude Code's own record of a result (`toolUseResult`), unless it equals the output."""
    if not data or data == result.output or data == f"Error: {result.output}":
        return result
    if not isinstance(data, dict | list):
        return replace(result, metadata={**result.metadata, "toolUseResult": data})
    durations = [duration(fields(data).get(name)) for name in ("totalDurationMs", "durationMs")]
    return replace(result, data=data, duration=next((ms for ms in durations if ms is not None), None))
