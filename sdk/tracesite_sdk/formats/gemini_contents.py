"""Read contents of Google's Gemini API (ai.google.dev/api/generate-content), in snake case or camel case.

* a list of contents (`{"role": "user" or "model", "parts": [...]}`), as a history or Gemini CLI's `/chat save` is;
* a request with it under `contents`, an answer (`candidates`, `usageMetadata`), or both: under `request` and `response`, as in the
  lines of a batch (`key`), or beside each other. The requests of one conversation are joined: see request_logs.py.

gemini_parts.py maps the parts. A part has no `type`, unlike in other formats with `parts`. Of several candidates the first is read.
The format has neither ids nor times, except `responseId` and `createTime` of an answer; calls without ids get their results by
name and order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import camel_cased, fields, instant, items, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import EMPTY_CONVERSATION, Entry, Prompt, Reply, Transcript, has_conversation
from tracesite_sdk.transcripts.parsing.gemini_parts import read_parts, replies, results, usage_of
from tracesite_sdk.transcripts.parsing.request_logs import Exchange, joined, with_input

NAME = "gemini_contents"

_MAX_TRIED = 50
_ROLES = ("user", "model", "function", "system")
_PARTS = frozenset(
    {
        "text",
        "thought",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
    }
    | {"videoMetadata", "thoughtSignature"}
)
_ANSWER = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime", "promptFeedback"})
_CONTENT_FIELDS = ("role", "parts", "usageMetadata", "modelVersion", "createTime", "finishMessage")
_STOPPED = ("STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED")
"""Reasons that end an answer without an error."""


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a list of contents, a request or an answer, or they are contents themselves."""
    values = first_values(document, _MAX_TRIED)
    if not isinstance(document, dict) and _are_contents(values):
        return True
    return any(_are_contents(value) or _split(value) is not None for value in values)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the conversations of a document that `recognises` accepts; report omissions to `skip`."""
    for exchange in joined(_exchanges(document, skip), _identity):
        entries = list(_entries(exchange, skip))
        if has_conversation(entries):
            metadata = rest(dict(exchange.rest), ("systemInstruction",))
            yield Transcript(entries=partial(iter, entries), place=exchange.place, metadata=metadata)
        else:
            skip(exchange.where or "(all)", EMPTY_CONVERSATION)


def _are_contents(value: object) -> bool:
    contents = [content for content in items(value)[:_MAX_TRIED] if isinstance(content, dict)]
    is_named = any("role" in content and content.get("parts") for content in contents)
    return is_named and all(map(_is_content, contents))


def _is_content(content: dict[str, Any]) -> bool:
    parts = content.get("parts")
    return content.get("role", "user") in _ROLES and (
        isinstance(parts, list)
        and all(
            isinstance(part, dict) and "type" not in part and not _PARTS.isdisjoint(camel_cased(part)) for part in parts
        )
    )


def _split(value: object) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]] | None:
    """Return the request, the content of the answer, and the other fields of an object; None if it has neither."""
    whole = camel_cased(value)
    request, response = camel_cased(whole.get("request")), camel_cased(whole.get("response"))
    others = rest(whole, ("request", "response"))
    if not request and not response:
        request, response, others = rest(whole, _ANSWER), {name: whole[name] for name in _ANSWER & whole.keys()}, {}
    answer = _answer(response)
    contents = [content for content in items(request.get("contents"))[:_MAX_TRIED] if isinstance(content, dict)]
    if answer is None and not (contents and all(map(_is_content, contents))):
        return None
    return request, answer, others


def _answer(response: dict[str, Any]) -> dict[str, Any] | None:
    """Return the content of an answer, with the fields of the answer."""
    candidate = camel_cased(next(iter(items(response.get("candidates"))), None))
    content = fields(candidate.get("content"))
    is_stopped = "finishReason" in candidate and ("usageMetadata" in response or "modelVersion" in response)
    if not (_is_content(content) or is_stopped):
        return None
    return {"role": "model", **content, **rest(candidate, ("content", "index")), **rest(response, ("candidates",))}


def _exchanges(document: Document, skip: Skip) -> Iterator[Exchange]:
    numbered = list(numbered_values(document))
    if not isinstance(document, dict) and _are_contents([value for _where, value in numbered]):
        contents = [value for _where, value in numbered]
        yield Exchange(place=0, where="", messages=contents, rest={}, can_grow=False)
        return
    for place, (where, value) in enumerate(numbered):
        if _are_contents(value):
            yield Exchange(place=place, where=where, messages=items(value), rest={}, can_grow=False)
            continue
        found = _split(value)
        if found is None:
            skip(where or "(all)", "neither contents nor an answer")
            continue
        request, answer, others = found
        yield Exchange(
            place=place,
            where=join_place(where, "contents"),
            messages=items(request.get("contents")),
            rest={**rest(request, ("contents",)), **others},
            answer=answer,
            request=rest(request, ("contents",)),
            sent_at=instant(fields(answer).get("createTime")),
        )


def _identity(content: Any) -> Any:
    """Return what is the same of a content in every request."""
    parts = items(fields(content).get("parts"))
    return [fields(content).get("role"), [rest(camel_cased(part), ("thoughtSignature",)) for part in parts]]


def _entries(exchange: Exchange, skip: Skip) -> Iterator[Entry]:
    system = exchange.rest.get("systemInstruction")
    if prompt := read_parts(fields(system).get("parts") or system).content:
        yield Prompt(id="system", role="system", content=prompt)
    for index, content in enumerate(exchange.messages):
        if not isinstance(content, dict):
            skip(f"{exchange.where}[{index}]", "not an object")
            continue
        content = camel_cased(exchange.answers.get(index, content))
        parts, role = items(content.get("parts")), content.get("role", "user")
        metadata = rest(content, _CONTENT_FIELDS)
        if role == "model":
            reason = text(content.get("finishReason"))
            reply = Reply(
                id=str(index),
                content=None,
                model=text(content.get("modelVersion")) or text(exchange.rest.get("model")),
                usage=usage_of(content.get("usageMetadata")),
                created_at=exchange.times.get(index),
                error=text(content.get("finishMessage")) or reason if reason and reason not in _STOPPED else None,
                metadata=metadata,
            )
            yield from with_input(replies(reply, parts), exchange, index)
        elif role in _ROLES:
            read = read_parts(parts)
            yield from results(str(index), read, exchange.times.get(index))
            if read.visible or not read.responses:
                yield Prompt(
                    id=str(index),
                    role="system" if role == "system" else "user",
                    content=read.content,
                    created_at=exchange.times.get(index),
                    metadata=metadata,
                )
        else:
            skip(f"{exchange.where}[{index}]", f"the role is {text(role)!r:.60}; a role is one of {', '.join(_ROLES)}")
