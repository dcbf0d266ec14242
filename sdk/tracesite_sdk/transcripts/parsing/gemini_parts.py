"""Map the content parts of Google's Gemini API, which Gemini CLI and Qwen Code store in their files.

* `text` is content, or reasoning with `thought: true`;
* `functionCall` is a call, `functionResponse` the result of one: its `response` is `{"output"}`, `{"error"}` or any object;
* images, files and any other part are kept as parts of the content.

A content is a text, a part or a list of both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tracesite_sdk.normalize.json_values import as_json, fields, rest, text
from tracesite_sdk.transcripts.entries import Call

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
    elif isinstance(output, dict) and output.keys() == {"output"}:
        output = output["output"]
    return Response(call_id=text(response.get("id")), name=text(response.get("name")), output=output, failed=failed)
