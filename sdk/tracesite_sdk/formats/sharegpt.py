"""Read conversations of data sets in the form of ShareGPT: `{"conversations": [{"from": "human", "value": "..."}, ...]}`.

A document is lines, a list, or one of such rows (also with `items` or `conversation` in place of `conversations`), or the
turns alone. The sender of a turn may have any of the names used by data sets; `system` and `tools` may be beside the turns.

* `human` is a prompt, `gpt` a reply.
* A turn of `function_call` is a call: JSON with `name` and `arguments`, or a list of them.
* In a data set with tools (`tools`, a turn of a tool, or `<tools>` in the system prompt) a reply has its calls as
  `<tool_call>` around such JSON or around a Python dictionary. The text around them is the content, `<think>` the
  reasoning. Broken calls stay text.
* `observation`, `tool` and `function_response` are results: text, or several `<tool_response>`. A JSON object with
  `name` and `content` names its tool. Calls have no ids; results are matched by name and order.

Other fields of a row and of a turn (`weight`, `loss` ...) are metadata. A row has no times. Its `id` is kept in the
metadata and is not the id of the session, because it only numbers the rows of one data set; the external id is derived
from the content. Lines are read one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import content, fields, items, rest, text
from tracesite_sdk.transcripts.documents import Document, Lines, Skip, first_values, join_place, numbered_values
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
from tracesite_sdk.transcripts.parsing.python_notation import json_or_python

NAME = "sharegpt"

_TURNS = ("conversations", "conversation", "items")
_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model", "chatgpt", "bot", "bing", "bard", "claude"), "assistant"),
    **dict.fromkeys(("system", "system_prompt"), "system"),
    **dict.fromkeys(("function_call", "function-call", "tool_call", "tool_calls"), "call"),
    **dict.fromkeys(("observation", "tool", "tool_response", "function_response", "function-response", "function"), "result"),
}  # fmt: skip
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>(.*?)(?:</tool_response>|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>(.*?)</think>", re.DOTALL)


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a row, or the values are the turns of a row."""
    values = first_values(document, 50)
    return any(_turns_key(value) or _are_turns(value) for value in values) or _are_turns(values)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for place, row in enumerate(_rows(document, skip)):
        entries = list(_entries(row, skip))
        if not has_conversation(entries):
            skip(row.where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            title=text(row.rest.get("title")),
            metadata=rest(row.rest, ("title", "system")),
        )


@dataclass(frozen=True)
class _Row:
    where: str
    turns: list[Any]
    rest: dict[str, Any]


def _rows(document: Document, skip: Skip) -> Iterator[_Row]:
    if _are_turns(document.head() if isinstance(document, Lines) else document):
        # The document is a single row: each line or item is a turn.
        yield _Row("", [value for _where, value in numbered_values(document)], {})
        return
    for where, value in numbered_values(document):
        if _are_turns(value):
            yield _Row(where, value, {})
        elif key := _turns_key(value):
            others = {name: item for name, item in value.items() if name != key}
            yield _Row(join_place(where, key), items(value[key]), others)
        else:
            skip(where or "(all)", "not a conversation: no turns with from and value")


def _turns_key(value: object) -> str:
    """Return the key of the turns in a row; "" for any other value."""
    return next((key for key in _TURNS if _are_turns(fields(value).get(key))), "")


def _are_turns(value: object) -> bool:
    if not isinstance(value, list):
        return False
    turns = [turn for turn in value[:50] if isinstance(turn, dict)]
    return any(isinstance(turn.get("value"), str) and _role(turn) is not None for turn in turns) and len(
        turns
    ) * 2 >= len(value[:50])


def _role(turn: dict[str, Any]) -> str | None:
    sender = turn.get("from")
    return _ROLES.get(sender.strip().lower()) if isinstance(sender, str) else None


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(row: _Row, skip: Skip) -> Iterator[Entry]:
    system = content(row.rest.get("system"))
    if system:
        yield Prompt(id="system", role="system", content=system)
    has_tools = _has_tools(row)
    for index, turn in enumerate(row.turns):
        where = f"{row.where}[{index}]"
        role = _role(turn) if isinstance(turn, dict) else None
        if role is None:
            sender = text(fields(turn).get("from"))
            skip(
                where,
                f"from is {sender[:60]}, which is not a known role" if sender else "not a turn with from and value",
            )
            continue
        metadata, value = rest(turn, ("from", "value")), turn.get("value")
        if role in ("user", "system"):
            yield Prompt(id=str(index), role="user" if role == "user" else "system", content=content(value), metadata=metadata)  # fmt: skip
        elif role == "result":
            yield from _results(str(index), value, metadata)
        elif role == "call":
            if isinstance(value, str):
                tagged = [call for part in _CALL.findall(value) if (call := json_or_python(part)) is not None]
                calls = _calls(tagged or json_or_python(value))
            else:
                calls = _calls(value)
            yield Reply(id=str(index), content=None if calls else content(value), calls=calls, metadata=metadata)
        else:
            yield _reply(str(index), value, metadata, has_tools=has_tools)


def _has_tools(row: _Row) -> bool:
    if row.rest.get("tools") or any(isinstance(turn, dict) and _role(turn) in ("call", "result") for turn in row.turns):
        return True
    prompts = [fields(turn).get("value") for turn in row.turns if _role(fields(turn)) == "system"]
    texts = [text(prompt) or "" for prompt in (*prompts, row.rest.get("system"))]
    return any("<tools>" in prompt or "<tool_call>" in prompt for prompt in texts)


def _reply(id_: str, value: Any, metadata: dict[str, Any], *, has_tools: bool) -> Reply:
    if not isinstance(value, str) or not has_tools:
        return Reply(id=id_, content=content(value), metadata=metadata)
    calls: list[Call] = []

    def without_calls(match: re.Match[str]) -> str:
        parsed = _calls(json_or_python(match[1]))
        calls.extend(parsed)
        return "" if parsed else match[0]

    answer = _CALL.sub(without_calls, value)
    thought = _THOUGHT.match(answer)
    if thought is not None:
        answer = answer[thought.end() :]
    return Reply(
        id=id_,
        content=answer.strip() if calls or thought else answer,
        calls=calls,
        reasoning=thought[1].strip() if thought else None,
        metadata=metadata,
    )


def _calls(value: Any) -> list[Call]:
    """Return the calls in a JSON value; none if one of its items is not a call."""
    calls = [_call(item) for item in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if all(calls) else []


def _call(value: Any) -> Call | None:
    call = fields(value)
    function = fields(call.get("function")) or call
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return None
    args: Any = next((function[key] for key in ("arguments", "parameters", "args") if key in function), {})
    used = ("id", "function", "name", "arguments", "parameters", "args")
    metadata = rest(call, (*used, *(("type",) if call.get("type") == "function" else ())))
    return Call(id=text(call.get("id")), name=name, args=args, metadata=metadata)


def _results(id_: str, value: Any, metadata: dict[str, Any]) -> Iterator[Result]:
    tagged = _RESPONSE.findall(value) if isinstance(value, str) else []
    for number, item in enumerate(tagged or [value]):
        output = item.strip() if tagged else item
        decoded = json_or_python(output) if isinstance(output, str) else output
        name = call_id = None
        if isinstance(decoded, dict) and isinstance(decoded.get("name"), str) and "content" in decoded:
            name, output = decoded["name"], decoded["content"]
            call_id = text(decoded.get("tool_call_id")) or text(decoded.get("id"))
        yield Result(
            id=f"{id_}.{number}" if number else id_,
            output=output,
            failed=None,
            call_ids=[call_id] if call_id else [],
            name=name,
            metadata=metadata,
        )
