"""Text, reasoning, tokens and model name of a model's response, from the return value of its client.

Clients return texts, dicts, objects with fields, or a stream of any of these. A part that is not found is None; the value
is only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracesite_sdk.recorder.capture.entries import thaw

_TEXT = ("output_text", "text", "content", "completion", "response")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_USAGE = ("usage", "usage_metadata", "usageMetadata", "token_usage")
_MODEL = ("model", "model_name", "modelName")
_BELOW = ("message", "delta")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The parts of a response; None for a missing part."""

    text: str | None = None
    reasoning: str | None = None
    usage: dict[str, Any] | None = None
    model: str | None = None


def read(value: Any) -> Answer:
    """Read a response, or the list of its chunks."""
    if isinstance(value, str):
        return Answer(text=value or None)
    if isinstance(value, list | tuple):
        return _joined([read(piece) for piece in value])
    places = _places(value)
    return Answer(
        text=_first_text(places, _TEXT),
        reasoning=_first_text(places, _REASONING) or _thinking(places),
        usage=_usage(value),
        model=next((model for name in _MODEL if isinstance(model := _get(value, name), str) and model), None),
    )


def _joined(pieces: list[Answer]) -> Answer:
    return Answer(
        text="".join(piece.text or "" for piece in pieces) or None,
        reasoning="".join(piece.reasoning or "" for piece in pieces) or None,
        usage=next((piece.usage for piece in reversed(pieces) if piece.usage), None),
        model=next((piece.model for piece in reversed(pieces) if piece.model), None),
    )


def _places(value: Any) -> list[Any]:
    """Return the objects that may hold the text, the innermost first."""
    choices = _get(value, "choices")
    places = [choices[0], value] if isinstance(choices, list | tuple) and choices else [value]
    below = [inner for value in places for name in _BELOW if (inner := _get(value, name)) is not None]
    return [*below, *places]


def _first_text(places: list[Any], names: Iterable[str]) -> str | None:
    for holder in places:
        for name in names:
            text = _get(holder, name)
            if isinstance(text, list | tuple):
                text = "".join(_block(block, "text") for block in text)
            if isinstance(text, str) and text:
                return text
    return None


def _thinking(places: list[Any]) -> str | None:
    blocks = next((content for holder in places if isinstance(content := _get(holder, "content"), list | tuple)), ())
    return "".join(_block(block, "thinking") for block in blocks) or None


def _block(block: Any, name: str) -> str:
    text = block if isinstance(block, str) and name == "text" else _get(block, name)
    return text if isinstance(text, str) else ""


def _usage(value: Any) -> dict[str, Any] | None:
    for holder in (value, _get(value, "response_metadata")):
        for name in _USAGE:
            usage = _get(holder, name)
            if usage is None:
                continue
            plain = thaw(usage)
            if not isinstance(plain, dict) and hasattr(usage, "__dict__"):
                plain = thaw(vars(usage))
            if isinstance(plain, dict) and any(isinstance(count, int) for count in plain.values()):
                return {name: count for name, count in plain.items() if count is not None}
    return None


def _get(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if value is None or isinstance(value, str | bytes | int | float | list | tuple):
        return None
    item = getattr(value, name, None)
    return None if callable(item) else item
