"""Read histories of AutoGen 0.2, AG2 and Magentic-One, and of the data sets Who&When and AgentRx made of them.

* a chat history: a list of `{"role", "name", "content"}`, or a `ChatResult` with it as `chat_history`. A role depends on whose
  list it is, so the name counts: who began is the user;
* a run of Who&When: `{"history", "question", "mistake_agent", "mistake_step", ...}`, whose first entry is the prompt, and the
  bare list of AgentRx. Without names the role is the speaker: `human`, `WebSurfer`, `Orchestrator (thought)`;
* the log of Magentic-One and of AgBench: lines of `{"timestamp", "source", "message", "type"}`, with `LLMCallEvent`s that have
  tokens.

A speaker may have a mark: `(thought)` is reasoning, `(-> WebSurfer)` names whom it is for, `(termination condition)` is a system
message. Calls are only those of AG2 (`tool_calls`, `tool_responses`) and code in a reply that a later entry says the exit code of.
What is known of a mistake is metadata of the session. There are no ids of conversations; `question_ID` names the task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import content, fields, instant, items, rest, text, time_flags
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
from tracesite_sdk.transcripts.parsing.response_items import call_of
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "autogen_history"

_MAX_TRIED = 50
_CODE = "code_execution"
_HUMANS = ("human", "user", "userproxy", "user_proxy")
_ROLES = ("system", "user", "assistant", "tool", "function")
_LOGGED = frozenset(
    {"OrchestrationEvent", "WebSurferEvent", "TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage"}
    | {"ToolCallRequestEvent", "ToolCallExecutionEvent", "ToolCallSummaryMessage", "ThoughtEvent"}
)
_SPEAKER = re.compile(r"(?P<name>[^()]{1,200}) \((?P<mark>[^()]{1,200})\)")
_CODE_BLOCK = re.compile(r"```(\w*)[ \t]*\n(.*?)\n?```", re.DOTALL)
_EXITED = re.compile(
    r"exitcode: (-?\d{1,9}) \(execution \w+[^)\n]*\)\s*(?:Code output:)?\s*"
    r"|The script ran, then exited with Unix exit code: (-?\d{1,9})\b\s*(?:Its output was:)?\s*"
)
_FIELDS = ("role", "name", "content", "tool_calls", "function_call", "tool_responses", "tool_call_id", "timestamp")
_LOG_FIELDS = ("source", "message", "prompt_tokens", "completion_tokens")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a run, or they are a history or a log."""
    values = first_values(document, _MAX_TRIED)
    if not isinstance(document, dict) and (_is_history(values) or any(map(_is_logged, values))):
        return True
    return any(_run(value) is not None or _is_history(value) for value in values)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the runs of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, history, about) in enumerate(_runs(document, skip)):
        entries = list(_Reader(history, where, is_run="mistake_agent" in about).entries(skip))
        if has_conversation(entries):
            title = text(about.get("question"))
            yield Transcript(entries=partial(iter, entries), place=place, title=title, metadata=about)
        else:
            skip(where or "(all)", EMPTY_CONVERSATION)


def _runs(document: Document, skip: Skip) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    values = first_values(document, _MAX_TRIED)
    if not isinstance(document, dict) and (_is_history(values) or any(map(_is_logged, values))):
        yield "", [value for _where, value in numbered_values(document)], {}
        return
    for where, value in numbered_values(document):
        key = _run(value)
        if key is not None:
            yield join_place(where, key), items(value[key]), rest(value, (key,))
        elif _is_history(value):
            yield where, items(value), {}
        else:
            skip(where or "(all)", "no history of AutoGen")


def _run(value: object) -> str | None:
    """Return the key of the history in a run; None for any other value."""
    run = fields(value)
    if isinstance(run.get("history"), list) and "mistake_agent" in run and "mistake_step" in run:
        return "history"
    is_result = isinstance(run.get("chat_history"), list) and {"summary", "cost", "human_input"} <= run.keys()
    return "chat_history" if is_result else None


def _is_logged(value: object) -> bool:
    """Return whether this is a line of a log, which has the text of what was said."""
    line = fields(value)
    kind = line.get("type")
    is_named = isinstance(line.get("source"), str) and isinstance(line.get("message"), str) and "timestamp" in line
    return isinstance(kind, str) and is_named and kind in _LOGGED


def _is_history(value: object) -> bool:
    messages = [message for message in items(value)[:_MAX_TRIED] if isinstance(message, dict)]
    if not messages or not all("content" in message and isinstance(message.get("role"), str) for message in messages):
        return False
    if any(message["role"].startswith("Orchestrator (") for message in messages):
        return True
    named = [message for message in messages if message["role"] != "system"]
    if len({text(message.get("name")) for message in named} - {None}) < 2 or not all(message.get("name") and message["role"] in _ROLES for message in named):  # fmt: skip
        return False
    return (
        any("tool_responses" in message or _EXITED.match(_said(message)) is not None for message in named)
        # In the list of who began, its own messages are the assistant's.
        or (named[0]["role"] == "assistant" and any(message["role"] == "user" for message in named))
    )


def _said(message: dict[str, Any]) -> str:
    said = message.get("content")
    return said if isinstance(said, str) else ""


class _Reader:
    """Yields the entries of one history."""

    def __init__(self, history: list[Any], where: str, *, is_run: bool) -> None:
        self._messages = [_message(value) for value in history]
        self._where = where
        self._is_run = is_run
        self._initiator: str | None = None
        self._ran: set[int] = set()
        """The indexes of replies whose code was run."""
        with_code: int | None = None
        for index, message in enumerate(self._messages):
            if _EXITED.match(_said(message)) is not None:
                self._ran |= set() if with_code is None else {with_code}
                with_code = None
            elif _CODE_BLOCK.search(_said(message)) is not None:
                with_code = index

    def entries(self, skip: Skip) -> Iterator[Entry]:
        for index, message in enumerate(self._messages):
            if not message:
                skip(f"{self._where}[{index}]", "not a message")
                continue
            yield from self._entries(index, message)

    def _entries(self, index: int, message: dict[str, Any]) -> Iterator[Entry]:
        own, said, role = str(index), _said(message), text(message.get("role")) or ""
        speaker = _SPEAKER.fullmatch(role)
        name = text(message.get("name")) or (speaker["name"] if speaker is not None else role)
        mark = speaker["mark"] if speaker is not None else None
        at, flags = instant(message.get("timestamp")), time_flags(message.get("timestamp"))
        metadata = rest(message, _FIELDS)
        exited = _EXITED.match(said)
        if role in ("tool", "function") or "tool_responses" in message:
            yield from _results(own, message)
        elif exited is not None:
            code = int(exited[1] or exited[2])
            yield Result(
                id=own,
                output=said[exited.end() :],
                failed=code != 0,
                created_at=at,
                name=_CODE,
                metadata={**metadata, "exit_code": code, "name": name},
            )
        elif role == "system" or mark == "termination condition":
            about = {"role": role} if role != "system" else {}
            yield Prompt(
                id=own,
                role="system",
                content=content(message.get("content")),
                created_at=at,
                health=flags,
                is_aside=mark is not None,
                metadata={**metadata, **about},
            )
        elif self._is_of_user(name, message):
            if said or message.get("content"):
                yield Prompt(
                    id=own,
                    role="user",
                    content=content(message.get("content")),
                    created_at=at,
                    health=flags,
                    metadata={**metadata, "name": name},
                )
        else:
            to = mark.removeprefix("->").strip() if mark is not None and mark.startswith("->") else None
            is_thought = mark == "thought"
            yield Reply(
                id=own,
                content=None if is_thought else content(message.get("content")),
                calls=[*_calls(message), *(_code(said) if index in self._ran else ())],
                reasoning=said if is_thought else None,
                agent_name=name,
                usage=fields(message.get("usage")) or None,
                created_at=at,
                health=flags,
                metadata={
                    **rest(metadata, ("usage",)),
                    **rest({"to": to, "mark": None if to or is_thought else mark}, ()),
                },
            )

    def _is_of_user(self, name: str, message: dict[str, Any]) -> bool:
        is_first, is_named = self._initiator is None, bool(message.get("name"))
        self._initiator = self._initiator or name
        if is_named:
            # The one who begins in a run of Who&When is an agent, whose words are the task.
            return is_first or (name == self._initiator and not self._is_run and not message.get("tool_calls"))
        return name.lower() in _HUMANS


def _message(value: object) -> dict[str, Any]:
    """Return an entry in the form of a history; an empty one if it is none."""
    message = fields(value)
    if _is_logged(message):
        about = {"name": None, "type": message["type"], **rest(message, (*_LOG_FIELDS, "type"))}
        return {"role": message["source"], "content": message["message"], **about}
    if message.get("type") == "LLMCallEvent":
        usage = {name: message[name] for name in ("prompt_tokens", "completion_tokens") if name in message}
        return {"role": "", "content": None, "usage": usage, **rest(message, _LOG_FIELDS)}
    return message if isinstance(message.get("role"), str) else {}


def _code(said: str) -> Iterator[Call]:
    """Yield the call that runs the code in a reply."""
    blocks = _CODE_BLOCK.findall(said)
    languages = dict.fromkeys(language for language, _code in blocks if language)
    args = {"language": ", ".join(languages), "code": "\n\n".join(code for _language, code in blocks)}
    yield Call(id=None, name=_CODE, args=rest(args, ()))


def _calls(message: dict[str, Any]) -> Iterator[Call]:
    for call in [*items(message.get("tool_calls")), {"function": message.get("function_call")}]:
        function = fields(fields(call).get("function"))
        if function:
            yield call_of("function_call", {**rest(call, ("function", "type")), **function})


def _results(own: str, message: dict[str, Any]) -> Iterator[Result]:
    """Yield the results in a message, whose content joins those of `tool_responses`, and whose name is that of an agent then."""
    responses = [response for response in items(message.get("tool_responses")) if isinstance(response, dict)]
    for number, response in enumerate(responses or [message]):
        call_id = text(response.get("tool_call_id"))
        output, attachments = text_and_attachments(content(response.get("content")))
        yield Result(
            id=f"{own}#{number}" if number else own,
            output=output,
            failed=None,
            created_at=instant(message.get("timestamp")),
            call_ids=[call_id] if call_id else [],
            name=text(response.get("name")),
            attachments=attachments,
        )
