"""Read conversations of ChatGPT: `conversations.json` of the data export, or one conversation as loaded by the site.

A conversation is a tree under `mapping`: each node has a `message`, a `parent` and `children`. The branch that ends with
`current_node` is read, or without it the branch of the latest leaf. Messages of other branches (edited prompts,
regenerated answers) are left out and counted.

* `user` is a prompt. Hidden messages, custom instructions (`user_editable_context`), memories (`model_editable_context`)
  and `system` are system messages; empty ones are ignored.
* `assistant` with the recipient `all` is text; `thoughts` are the reasoning of the next reply. With any other recipient
  it is a call of that tool (`python`, `browser`, `web.run`, `dalle.text2im` ...), which runs on the provider's servers.
  The arguments are the text as JSON, or as `code`. Texts and calls up to the first result are one reply.
* `tool` is the result of the last call of that tool before it; several in a row are one result. Nothing names the call: of
  parallel calls of one tool each takes the next result, which is a guess unless the result has the code of the call.
  `aggregate_result` or the type `system_error` marks a failure. `aggregate_result` and browser content are the data, images the attachments.

The id of a call is that of its node. An export has no tokens. If a conversation continued in another branch since the
last import, the branches are two sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from tracesite_sdk.normalize.json_values import between, fields, instant, items, rest, text
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, numbered_values
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

NAME = "chatgpt"

_CONTEXTS = {
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context", "repository", "structured_context"),
}
"""Types of context content, and their text fields."""
_SESSION_FIELDS = ("mapping", "title", "id", "conversation_id", "create_time", "current_node")
_MESSAGE_FIELDS = ("id", "author", "create_time", "content", "metadata", "recipient", "status", "weight", "end_turn")
_METADATA_FIELDS = ("model_slug", "parent_id", "aggregate_result", "timestamp_", "message_type")
_CONTENT_FIELDS = ("content_type", "parts", "text", "result", "summary")
_TEXT_KINDS = ("text", "multimodal_text", "code", "execution_output", "system_error")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a conversation."""
    return any(map(_is_conversation, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, value) in enumerate(numbered_values(document)):
        if not _is_conversation(value):
            skip(where or "(all)", "not a conversation: no messages under mapping")
            continue
        entries = _entries(_branch(value["mapping"], value.get("current_node"), where, skip))
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=text(value.get("conversation_id")) or text(value.get("id")),
            title=text(value.get("title")),
            created_at=instant(value.get("create_time")),
            metadata=rest(value, _SESSION_FIELDS),
        )


def _is_conversation(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        return False
    nodes = islice(value["mapping"].values(), 50)
    return any(isinstance(node, dict) and "message" in node and {"parent", "children"} & node.keys() for node in nodes)


# --- Tree -------------------------------------------------------------------------------------------------------------


def _branch(mapping: dict[str, Any], current: object, where: str, skip: Skip) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages of the visible branch with the ids of their nodes, root first."""
    nodes = {own: node for own, node in mapping.items() if isinstance(node, dict)}
    listed = {child: own for own, node in nodes.items() for child in items(node.get("children")) if isinstance(child, str)}  # fmt: skip
    at = current if isinstance(current, str) and current in nodes else _last_leaf(nodes)
    path: list[str] = []
    seen: set[str] = set()
    while at is not None and at in nodes and at not in seen:
        seen.add(at)
        path.append(at)
        parent = text(nodes[at].get("parent"))
        if parent is not None and parent not in nodes:
            skip(f"{where}.mapping".lstrip("."), f"the node {parent[:60]} is missing")
            # The node that lists the missing one as a child comes before it.
            parent = listed.get(parent)
        at = parent if parent is not None else listed.get(at)
    others = sum(1 for own, node in nodes.items() if own not in seen and _has_content(node))
    if others:
        skip(f"{where}.mapping".lstrip("."), f"other branches: {others} message{'s' * (others > 1)}")
    messages = ((own, nodes[own].get("message")) for own in reversed(path))
    return [(own, message) for own, message in messages if isinstance(message, dict)]


def _last_leaf(nodes: dict[str, dict[str, Any]]) -> str | None:
    """Return the latest node without children."""
    leaves = [own for own, node in nodes.items() if not any(child in nodes for child in map(str, items(node.get("children"))))]  # fmt: skip
    times = [(time, own) for own in leaves if (time := instant(fields(nodes[own].get("message")).get("create_time")))]
    return max(times)[1] if times else next(reversed(leaves), None)


def _role(message: dict[str, Any]) -> str:
    return text(fields(message.get("author")).get("role")) or ""


def _has_content(node: dict[str, Any]) -> bool:
    message = fields(node.get("message"))
    if _role(message) not in ("user", "assistant", "tool"):
        return False
    content = _Content(message)
    return bool(content.parts or content.thoughts)


# --- Contents ---------------------------------------------------------------------------------------------------------


class _Content:
    """The content of a message."""

    def __init__(self, message: dict[str, Any]) -> None:
        content = fields(message.get("content"))
        self.kind = text(content.get("content_type")) or "text"
        self.data = rest(content, _CONTENT_FIELDS)
        """Fields beside the text."""
        self.thoughts: list[str] = []
        self.parts: list[Any] = []
        if self.kind == "thoughts":
            self.thoughts = [_thought(fields(thought)) for thought in items(content.get("thoughts"))]
        elif self.kind == "reasoning_recap":
            self.data = rest({"reasoning_recap": content.get("content")}, ())
        elif self.kind in _CONTEXTS:
            self._add_texts([content.get(key) for key in _CONTEXTS[self.kind]])
        else:
            self._add_texts([content.get(key) for key in ("summary", "result", "text")])
            for part in items(content.get("parts")):
                self._add_part(part)
            if not self.parts and self.kind not in _TEXT_KINDS:
                self.parts = [{"type": self.kind, **self.data}] if self.data else []

    def _add_texts(self, texts: list[Any]) -> None:
        self.parts += [{"type": "text", "text": part_text} for value in texts if (part_text := text(value))]

    def _add_part(self, part: Any) -> None:
        if isinstance(part, dict):
            kind = text(part.get("content_type")) or text(part.get("type")) or "part"
            if kind in ("text", "audio_transcription") and isinstance(part.get("text"), str):
                self.parts.append(
                    {"type": "text", "text": part["text"], **rest(part, ("content_type", "text", "type"))}
                )
            else:
                self.parts.append({"type": kind, **rest(part, ("content_type", "type"))})
        else:
            self._add_texts([part])

    @property
    def text(self) -> str:
        return "\n\n".join(part["text"] for part in self.parts if part.get("type") == "text" and "text" in part)

    @property
    def others(self) -> list[Any]:
        return [part for part in self.parts if part.get("type") != "text"]

    @property
    def content(self) -> str | list[Any] | None:
        if all(part.keys() == {"type", "text"} for part in self.parts):
            return self.text or None
        return self.parts


def _thought(thought: dict[str, Any]) -> str:
    summary, content = text(thought.get("summary")), text(thought.get("content"))
    return "\n".join(filter(None, (f"**{summary}**" if summary else None, content)))


def _metadata(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message without a column."""
    metadata = {**rest(message, _MESSAGE_FIELDS), **rest(fields(message.get("metadata")), _METADATA_FIELDS)}
    if message.get("status") not in (None, "finished_successfully"):
        metadata["status"] = message["status"]
    return metadata


def _args(content: _Content) -> Any:
    """Return the arguments of a call, which are JSON, or code, or any text."""
    try:
        decoded = decode_json(content.text)
    except (msgspec.DecodeError, RecursionError):
        decoded = None
    if isinstance(decoded, dict):
        return decoded
    return {"code" if content.kind == "code" else "_raw": content.text}


# --- Entries ----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Open:
    """A reply with the results of its calls, to which further nodes may belong."""

    id: str
    created_at: datetime | None
    parts: list[Any] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    """The nodes of tools, by the id of their call."""
    guessed: set[str] = field(default_factory=set)
    """The ids of calls whose results may be those of other calls."""
    model: str | None = None
    agent_name: str | None = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def add_output(self, own: str, message: dict[str, Any]) -> bool:
        """Add a message of a tool to the call to which it belongs. Return whether there is one."""
        name, code = _tool_name(message), _run_of(message).get("code")
        same = [call for call in self.calls if call.name == name]
        same = same or [call for call in self.calls if call.name.split(".")[0] == name.split(".")[0]] or self.calls
        fitting = [call for call in same if code and fields(call.args).get("code") == code] or same
        waiting = [call for call in fitting if call.id not in self.outputs]
        call = next(iter(waiting or fitting[-1:]), None)
        if call is None or call.id is None:
            return False
        if len(fitting) > 1:
            self.guessed.add(call.id)
        self.outputs.setdefault(call.id, []).append((own, message))
        return True


def _entries(branch: list[tuple[str, dict[str, Any]]]) -> list[Entry]:
    entries: list[Entry] = []
    reply: _Open | None = None
    for own, message in branch:
        role, content = _role(message), _Content(message)
        is_hidden = fields(message.get("metadata")).get("is_visually_hidden_from_conversation") is True
        is_prompt = role == "user" and content.kind not in _CONTEXTS and not is_hidden
        if role == "tool":
            if (reply is None or not reply.add_output(own, message)) and content.parts:
                entries += _closed(reply)
                reply = None
                entries.append(_result([(own, message)], None))
        elif role == "assistant":
            if not (content.parts or content.thoughts or content.kind == "reasoning_recap"):
                continue
            recipient = text(message.get("recipient")) or "all"
            is_call = recipient != "all"
            if reply is not None and (reply.outputs or (not is_call and (reply.calls or reply.parts))):
                entries += _closed(reply)
                reply = None
            reply = reply or _Open(id=own, created_at=instant(message.get("create_time")))
            _add(reply, own, message, content, recipient if is_call else None)
        elif content.parts or is_prompt:
            entries += _closed(reply)
            reply = None
            metadata = _metadata(message)
            if content.kind in _CONTEXTS:
                metadata["type"] = content.kind
            elif role != "system" and not is_prompt:
                metadata["role"] = role
            entries.append(
                Prompt(
                    id=own,
                    role="user" if is_prompt else "system",
                    content=content.content,
                    created_at=instant(message.get("create_time")),
                    is_aside=not is_prompt,
                    metadata=metadata,
                )
            )
    return entries + _closed(reply)


def _add(reply: _Open, own: str, message: dict[str, Any], content: _Content, recipient: str | None) -> None:
    metadata = fields(message.get("metadata"))
    reply.model = text(metadata.get("model_slug")) or text(metadata.get("resolved_model_slug")) or reply.model
    reply.agent_name = text(fields(message.get("author")).get("name")) or reply.agent_name
    if recipient is not None:
        at = instant(message.get("create_time"))
        others = {**_metadata(message), **rest(content.data, ("response_format_name",))}
        reply.calls.append(Call(id=own, name=recipient, args=_args(content), started_at=at, metadata=others))
        return
    reply.metadata |= _metadata(message)
    if content.kind == "system_error":
        reply.error = content.text or "system error"
    elif content.kind == "reasoning_recap":
        reply.metadata |= content.data
    else:
        reply.thoughts += content.thoughts
        reply.parts += content.parts


def _closed(reply: _Open | None) -> list[Entry]:
    """Return the entries of a reply that has ended."""
    if reply is None:
        return []
    plain = all(part.keys() == {"type", "text"} for part in reply.parts)
    return [
        Reply(
            id=reply.id,
            content="\n\n".join(part["text"] for part in reply.parts) or None if plain else reply.parts,
            calls=reply.calls,
            reasoning="\n\n".join(filter(None, reply.thoughts)) or None,
            agent_name=reply.agent_name,
            model=reply.model,
            created_at=reply.created_at,
            error=reply.error,
            metadata=reply.metadata,
        ),
        *(_result(nodes, call_id, is_guessed=call_id in reply.guessed) for call_id, nodes in reply.outputs.items()),
    ]


# --- Results ----------------------------------------------------------------------------------------------------------


def _tool_name(message: dict[str, Any]) -> str:
    return text(fields(message.get("author")).get("name")) or ""


def _run_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of the run of code that gave a message of a tool."""
    return fields(fields(message.get("metadata")).get("aggregate_result"))


def _result(nodes: list[tuple[str, dict[str, Any]]], call_id: str | None, *, is_guessed: bool = False) -> Result:
    """Return the result in the nodes of a tool."""
    messages = [message for _own, message in nodes]
    contents = [_Content(message) for message in messages]
    runs = [_run_of(message) for message in messages]
    browsed = [content.data for content in contents if content.kind.startswith("tether")]
    data = [item for item in (*runs, *browsed) if item]
    outcomes = [_failed(*values) for values in zip(contents, runs, messages, strict=True)]
    metadata: dict[str, Any] = {}
    for message in messages:
        metadata |= _metadata(message)
    run = next((run for run in runs if run), {})
    began, ended = instant(run.get("start_time")), instant(run.get("end_time"))
    last = messages[-1]
    return Result(
        id=nodes[0][0],
        output="\n\n".join(content.text for content in contents if content.text),
        failed=True if True in outcomes else next((outcome for outcome in outcomes if outcome is not None), None),
        created_at=ended or instant(last.get("create_time")),
        duration=between(began, ended),
        data=data[0] if len(data) == 1 else data or None,
        call_ids=[call_id] if call_id is not None else [],
        is_guessed=is_guessed,
        name=_tool_name(last) or None,
        attachments=[part for content in contents for part in content.others if not content.kind.startswith("tether")]
        or None,
        metadata=metadata,
    )


def _failed(content: _Content, run: dict[str, Any], message: dict[str, Any]) -> bool | None:
    if content.kind == "system_error" or fields(message.get("metadata")).get("is_error") is True:
        return True
    status = text(run.get("status"))
    has_exception = any(run.get(key) for key in ("in_kernel_exception", "system_exception", "timeout_triggered"))
    if has_exception or (status is not None and status.startswith(("failed", "cancelled"))):
        return True
    return False if status == "success" else None
