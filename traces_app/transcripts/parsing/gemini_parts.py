"""Map the content parts of Google's Gemini API, which Gemini CLI and Qwen Code store in their files.

* `text` is content, or reasoning with `thought: true`;
* `functionCall` is a call, `functionResponse` the result of one: its `response` is `{"output"}`, `{"error"}` or any object;
* images, files and any other part are kept as parts of the content.

A content is a text, a part or a list of both. Works without Django.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from traces_app.normalize.json_values import as_json, fields, rest, text
from traces_app.transcripts.entries import Call


@dataclass(frozen=True, kw_only=True)
class Response:
    """A `functionResponse`."""

    call_id: str | None
    name: str | None
    output: Any
    failed: bool | None
    """True for an error, else None, because the format has no mark of success."""


@dataclass(kw_only=True)
class Parts:
    """A content, sorted."""

    said: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)

    @property
    def content(self) -> str | list[Any] | None:
        """The content: the text if it is a single text, else the parts."""
        if len(self.said) == 1 and isinstance(self.said[0], dict) and self.said[0].keys() == {"type", "text"}:
            return str(self.said[0]["text"])
        return self.said or None

    @property
    def others(self) -> list[Any]:
        """The parts that are not text."""
        return [part for part in self.said if fields(part).get("type") != "text"]

    @property
    def text(self) -> str:
        return "\n".join(str(part["text"]) for part in self.said if fields(part).get("type") == "text")

    @property
    def thought(self) -> str | None:
        return "\n\n".join(self.reasoning) or None


def read_parts(content: object) -> Parts:
    """Sort the parts of a content of any type."""
    found = Parts()
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            _sort(found, part)
        elif part not in (None, ""):
            found.said.append({"type": "text", "text": part if isinstance(part, str) else as_json(part)})
    return found


def _sort(found: Parts, part: dict[str, Any]) -> None:
    said = part.get("text")
    if part.get("thought") is True and isinstance(said, str):
        found.reasoning += [said] if said else []
    elif isinstance(call := part.get("functionCall"), dict):
        metadata = {**rest(call, ("id", "name", "args")), **rest(part, ("functionCall", "thoughtSignature"))}
        found.calls.append(
            Call(id=text(call.get("id")), name=text(call.get("name")) or "", args=call.get("args"), metadata=metadata)
        )
    elif isinstance(response := part.get("functionResponse"), dict):
        found.responses.append(_response(response))
    elif isinstance(said, str):
        others = rest(part, ("text", "thoughtSignature", "thought"))
        if said or others:
            found.said.append({"type": "text", "text": said, **others})
    elif others := rest(part, ("thoughtSignature",)):
        kind = next((name for name in ("inlineData", "fileData", "executableCode") if name in others), "part")
        found.said.append({"type": kind, **others})


def _response(response: dict[str, Any]) -> Response:
    said = response.get("response")
    failed = None
    if isinstance(said, dict) and said.get("error") not in (None, "", False) and "output" not in said:
        failed, said = True, said["error"] if said.keys() == {"error"} else said
    elif isinstance(said, dict) and said.keys() == {"output"}:
        said = said["output"]
    return Response(call_id=text(response.get("id")), name=text(response.get("name")), output=said, failed=failed)
