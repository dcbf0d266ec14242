"""Map the content parts of Google's Gemini API, which Gemini CLI, Qwen Code and ADK store in their files.

* `text` is content, or reasoning with `thought: true`;
* `functionCall` is a call, `functionResponse` the result of one: its `response` is `{"output"}`, `{"result"}`, `{"error"}` or any
  object;
* `executableCode`, which the provider runs, is a call too if its `codeExecutionResult` can follow (`replies`);
* images, files and any other part are kept as parts of the content.

A content is a text, a part or a list of both. Python writes the names of parts in snake case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import as_json, camel_cased, fields, rest, text
from tracesite_sdk.transcripts.entries import Call, Reply, Result

CODE = "code_execution"
"""The tool that runs the code of the model."""
_CODE, _RAN = "executableCode", "codeExecutionResult"
_NAMES = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "executable_code": _CODE,
    "code_execution_result": _RAN,
    "inline_data": "inlineData",
    "file_data": "fileData",
    "video_metadata": "videoMetadata",
    "thought_signature": "thoughtSignature",
}

_FILES = re.compile(r"^--- Content from referenced files ---\s*?$", re.MULTILINE)
_END_OF_FILES = re.compile(r"^--- End of content ---\s*?$", re.MULTILINE)
"""The lines around the files that a prompt names with `@`."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """A `functionResponse`."""

    call_id: str | None
    name: str | None
    output: Any
    failed: bool | None
    """True for an error, otherwise None, because the format has no mark of success."""


@dataclass(kw_only=True)
class Parts:
    """A content, sorted."""

    visible: list[Any] = field(default_factory=list)
    """Texts and other parts that are not reasoning, calls or responses."""
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)

    @property
    def content(self) -> str | list[Any] | None:
        """The text if the visible part is a single text, otherwise the visible parts."""
        if len(self.visible) == 1 and isinstance(self.visible[0], dict) and self.visible[0].keys() == {"type", "text"}:
            return str(self.visible[0]["text"])
        return self.visible or None

    @property
    def others(self) -> list[Any]:
        """The parts that are not text."""
        return [part for part in self.visible if fields(part).get("type") != "text"]

    @property
    def text(self) -> str:
        return "\n".join(str(part["text"]) for part in self.visible if fields(part).get("type") == "text")

    @property
    def thought(self) -> str | None:
        return "\n\n".join(self.reasoning) or None


def read_parts(content: object) -> Parts:
    """Sort the parts of a content of any type."""
    sorted_parts = Parts()
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            _sort(sorted_parts, part)
        elif part not in (None, ""):
            sorted_parts.visible.append({"type": "text", "text": part if isinstance(part, str) else as_json(part)})
    return sorted_parts


def results(id_: str, parts: Parts, created_at: datetime | None) -> Iterator[Result]:
    """Yield the results in a content, with ids that derive from its entry's."""
    for number, response in enumerate(parts.responses):
        yield Result(
            id=f"{id_}#{number}",
            output=response.output,
            failed=response.failed,
            created_at=created_at,
            call_ids=[response.call_id] if response.call_id else [],
            name=response.name,
        )


def replies(reply: Reply, content: object) -> Iterator[Reply | Result]:
    """Yield the replies in a content of the model, and the results of the code in it: text after these is another reply.

    `reply` has the other fields of the first.
    """
    groups: list[list[Any]] = [[]]
    for part in map(_as_call, content if isinstance(content, list) else [content]):
        if groups[-1] and "functionResponse" in fields(groups[-1][-1]) and "functionResponse" not in fields(part):
            groups.append([])
        groups[-1].append(part)
    first = reply
    for number, group in enumerate(groups):
        parts = read_parts(group)
        if number:
            own = f"{first.id}.{number}"
            reply = Reply(id=own, content=None, agent_name=first.agent_name, created_at=first.created_at)
        yield replace(reply, content=parts.content, calls=parts.calls, reasoning=parts.thought)
        yield from results(reply.id, parts, first.created_at)


def usage_of(value: object) -> dict[str, Any] | None:
    """Return the tokens of a `usageMetadata`, with the names of JSON."""
    return camel_cased(value) or None


def _as_call(part: object) -> object:
    """Return code that the provider runs, and what came of it, as a call and its result."""
    if not isinstance(part, dict):
        return part
    part = _with_names_of_json(part)
    if isinstance(code := part.get(_CODE), dict):
        return {
            **rest(part, (_CODE,)),
            "functionCall": {"name": CODE, **rest({"id": code.get("id")}, ()), "args": rest(code, ("id",))},
        }
    if isinstance(ran := part.get(_RAN), dict):
        outcome = text(ran.get("outcome")) or ""
        output = {"output": ran.get("output") or ""}
        response = output if outcome in ("", "OUTCOME_OK") else {"error": text(ran.get("output")) or outcome}
        return {"functionResponse": {"id": ran.get("id"), "name": CODE, "response": response}}
    return part


def _with_names_of_json(part: dict[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(name, name): value for name, value in part.items() if value is not None}


def split_prompt(parts: Parts, shown: object) -> tuple[Parts, Parts]:
    """Return what the user typed and what the client added; `shown` is what it displayed of the prompt, if the file has it."""
    if typed := read_parts(shown).visible:
        return Parts(visible=typed), Parts(visible=[part for part in parts.visible if part not in typed])
    texts = [str(part.get("text", "")) for part in parts.visible]
    begins = ((at, found.start()) for at, said in enumerate(texts) if (found := _FILES.search(said)))
    first, start = next(begins, (len(texts), 0))
    ends = (
        (at, found.end())
        for at in range(first, len(texts))
        if (found := _END_OF_FILES.search(texts[at], start if at == first else 0))
    )
    last, end = next(ends, (-1, 0))
    added: list[Any] = []
    for at, (part, said) in enumerate(zip(parts.visible, texts, strict=True)):
        if not first <= at <= last:
            typed.append(part)
            continue
        begin, stop = start if at == first else 0, end if at == last else len(said)
        before, after = said[:begin].rstrip(), said[stop:].strip()
        typed += [{**part, "text": piece} for piece in (before, after) if piece]
        added.append(part if stop - begin == len(said) else {**part, "text": said[begin:stop]})
    return Parts(visible=typed), Parts(visible=added)


def _sort(parts: Parts, part: dict[str, Any]) -> None:
    part = _with_names_of_json(part)
    part_text = part.get("text")
    if part.get("thought") is True and isinstance(part_text, str):
        parts.reasoning += [part_text] if part_text else []
    elif isinstance(call := part.get("functionCall"), dict):
        metadata = {**rest(call, ("id", "name", "args")), **rest(part, ("functionCall", "thoughtSignature"))}
        parts.calls.append(
            Call(id=text(call.get("id")), name=text(call.get("name")) or "", args=call.get("args"), metadata=metadata)
        )
    elif isinstance(response := part.get("functionResponse"), dict):
        parts.responses.append(_response(response))
    elif isinstance(part_text, str):
        others = rest(part, ("text", "thoughtSignature", "thought"))
        if part_text or others:
            parts.visible.append({"type": "text", "text": part_text, **others})
    elif others := rest(part, ("thoughtSignature",)):
        kind = next((name for name in ("inlineData", "fileData", "executableCode") if name in others), "part")
        parts.visible.append({"type": kind, **others})


def _response(response: dict[str, Any]) -> Response:
    output = response.get("response")
    failed = None
    if isinstance(output, dict) and output.get("error") not in (None, "", False) and "output" not in output:
        failed, output = True, output["error"] if output.keys() == {"error"} else output
    elif isinstance(output, dict) and output.keys() in ({"output"}, {"result"}):
        (output,) = output.values()
    return Response(call_id=text(response.get("id")), name=text(response.get("name")), output=output, failed=failed)
