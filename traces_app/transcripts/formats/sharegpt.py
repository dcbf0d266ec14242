"""Conversations of data sets in the form of ShareGPT: `{"conversations": [{"from": "human", "value": "..."}, ...]}`.

Lines, a list, or one of such rows (also with `items` or `conversation` in place of `conversations`), and the turns alone. Who
says a turn is told by any of the names that data sets use; `system` and `tools` may stand beside the turns.

* `human` is a prompt, `gpt` a reply.
* A turn of `function_call` is a call: JSON with `name` and `arguments`, or a list of them.
* In a data set with tools (`tools`, a turn of a tool, or `<tools>` in the system prompt) a reply has its calls as
  `<tool_call>` around such JSON, or around a Python dictionary as some data sets have it; the text around them is
  said, `<think>` is the reasoning. What is broken stays text.
* `observation`, `tool` and `function_response` are results: text, or several `<tool_response>`. A JSON object with
  `name` and `content` names its tool. Calls have no ids: results belong to them by the names, and in their order.

Other fields of a row and of a turn (`weight`, `loss` ...) are metadata. A row has no times. Its `id` is kept in the
metadata and is no name of the session, as it counts the rows of one data set: the name derives from what is said.
Lines are read one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from traces_app.normalize.json_values import content, fields, items, rest, text
from traces_app.transcripts.entries import NOTHING_SAID, Call, Entry, Reply, Result, Said, Transcript, says_something
from traces_app.transcripts.files.documents import Document, Files, Lines, Skip
from traces_app.transcripts.parsing.python_notation import json_or_python

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
    """Return whether one of the first values is a row, or they are the turns of one."""
    if isinstance(document, Files):
        return False
    if isinstance(document, Lines):
        found = document.head()
    else:
        found = items(document)[:50] if isinstance(document, list) else [document]
    return any(_is_row(value) or _is_turns(value) for value in found) or _is_turns(found)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; `skip` is told of what they leave out."""
    for place, row in enumerate(_rows(document, skip)):
        entries = list(_entries(row, skip))
        if not says_something(entries):
            skip(row.where or "(all)", NOTHING_SAID)
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
    if isinstance(document, Lines):
        if _is_turns(document.head()):
            # Each line is a turn.
            yield _Row("", [line.value for line in document], {})
            return
        values: Iterator[tuple[str, Any]] = ((f"line {line.number}: ", line.value) for line in document)
    elif isinstance(document, list) and not _is_turns(document):
        values = ((f"[{index}].", value) for index, value in enumerate(document))
    else:
        values = iter([("", document)])
    for where, value in values:
        if _is_turns(value):
            yield _Row(where.rstrip(".: "), value, {})
        elif _is_row(value):
            key = _key(value)
            yield _Row(f"{where}{key}", items(value[key]), {name: item for name, item in value.items() if name != key})
        else:
            skip(where.rstrip(".: ") or "(all)", "no conversation: it has no turns with from and value")


def _key(value: dict[str, Any]) -> str:
    return next((key for key in _TURNS if _is_turns(value.get(key))), "")


def _is_row(value: object) -> bool:
    return isinstance(value, dict) and bool(_key(value))


def _is_turns(value: object) -> bool:
    if not isinstance(value, list):
        return False
    turns = [turn for turn in value[:50] if isinstance(turn, dict)]
    return any(_is_turn(turn) for turn in turns) and len(turns) * 2 >= len(value[:50])


def _is_turn(turn: dict[str, Any]) -> bool:
    return isinstance(turn.get("from"), str) and "value" in turn and _role(turn) is not None


def _role(turn: dict[str, Any]) -> str | None:
    said = turn.get("from")
    return _ROLES.get(said.strip().lower()) if isinstance(said, str) else None


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(row: _Row, skip: Skip) -> Iterator[Entry]:
    system = content(row.rest.get("system"))
    if system:
        yield Said(id="system", role="system", content=system)
    has_tools = _has_tools(row)
    for index, turn in enumerate(row.turns):
        where = f"{row.where}[{index}]"
        role = _role(turn) if isinstance(turn, dict) else None
        if role is None:
            said = text(fields(turn).get("from"))
            skip(where, f"from is {said[:60]}, which is nobody" if said else "no turn with from and value")
            continue
        metadata, value = rest(turn, ("from", "value")), turn.get("value")
        if role in ("user", "system"):
            yield Said(id=str(index), role="user" if role == "user" else "system", content=content(value), metadata=metadata)  # fmt: skip
        elif role == "result":
            yield from _results(str(index), value, metadata)
        elif role == "call":
            calls = _calls(value if not isinstance(value, str) else _unwrapped(value))
            yield Reply(id=str(index), content=None if calls else content(value), calls=calls, metadata=metadata)
        else:
            yield _reply(str(index), value, metadata, has_tools=has_tools)


def _has_tools(row: _Row) -> bool:
    if row.rest.get("tools") or any(isinstance(turn, dict) and _role(turn) in ("call", "result") for turn in row.turns):
        return True
    prompts = [fields(turn).get("value") for turn in row.turns if _role(fields(turn)) == "system"]
    return any("<tools>" in said or "<tool_call>" in said for said in (text(p) or "" for p in (*prompts, row.rest.get("system"))))  # fmt: skip


def _reply(id_: str, value: Any, metadata: dict[str, Any], *, has_tools: bool) -> Reply:
    if not isinstance(value, str) or not has_tools:
        return Reply(id=id_, content=content(value), metadata=metadata)
    calls: list[Call] = []

    def taken(found: re.Match[str]) -> str:
        asked = _calls(json_or_python(found[1]))
        calls.extend(asked)
        return "" if asked else found[0]

    said = _CALL.sub(taken, value)
    thought = _THOUGHT.match(said)
    if thought is not None:
        said = said[thought.end() :]
    return Reply(
        id=id_,
        content=said.strip() if calls or thought else said,
        calls=calls,
        reasoning=thought[1].strip() if thought else None,
        metadata=metadata,
    )


def _unwrapped(value: str) -> Any:
    found = [decoded for part in _CALL.findall(value) if (decoded := json_or_python(part)) is not None]
    return found or json_or_python(value)


def _calls(value: Any) -> list[Call]:
    """Return the calls that a JSON value is; none if any of it is no call."""
    found = [_call(one) for one in (value if isinstance(value, list) else [value])]
    return [call for call in found if call is not None] if all(found) else []


def _call(value: Any) -> Call | None:
    asked = fields(value)
    function = fields(asked.get("function")) or asked
    name = function.get("name")
    if not isinstance(name, str) or not name:
        return None
    args: Any = next((function[key] for key in ("arguments", "parameters", "args") if key in function), {})
    taken = ("id", "function", "name", "arguments", "parameters", "args")
    metadata = rest(asked, (*taken, *(("type",) if asked.get("type") == "function" else ())))
    return Call(id=text(asked.get("id")), name=name, args=args, metadata=metadata)


def _results(id_: str, value: Any, metadata: dict[str, Any]) -> Iterator[Result]:
    found = _RESPONSE.findall(value) if isinstance(value, str) else []
    for number, output in enumerate(found or [value]):
        said = output.strip() if found else output
        decoded = json_or_python(said) if isinstance(said, str) else said
        name = call_id = None
        if isinstance(decoded, dict) and isinstance(decoded.get("name"), str) and "content" in decoded:
            name, said = decoded["name"], decoded["content"]
            call_id = text(decoded.get("tool_call_id")) or text(decoded.get("id"))
        yield Result(
            id=f"{id_}.{number}" if number else id_,
            output=said,
            failed=None,
            call_ids=[call_id] if call_id else [],
            name=name,
            metadata=metadata,
        )
