"""Whatever is logged is a line of JSON, in ASCII."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils.safestring import mark_safe

TEXTS = {
    "plain": "plain",
    "quoted": 'a "quoted" \\ line\nand another',
    "chinese": "天气",
    "controls": "\x9b31m \u202e\u2028 \x00\x1b",
    "surrogate": "half \ud83d a pair",
}


def line_of(message: str, *args: object, fields: dict[str, Any] | None = None, failed: bool = False) -> dict[str, Any]:
    """What the formatter of the settings makes of it. It is not logged: pytest keeps what is, and chokes on surrogates."""
    (handler,) = (each for each in logging.getLogger().handlers if each.name == "stderr")
    info = sys.exc_info() if failed else None
    record = logging.getLogger("tests").makeRecord(
        "tests", logging.INFO, "", 0, message, args, info, extra={"request_id": None, **(fields or {})}
    )
    line = handler.format(record)
    assert line.isascii() and len(line.splitlines()) == 1
    made: dict[str, Any] = json.loads(line)
    return made


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_comes_back_from_its_line(text: str) -> None:
    line = line_of("said: %s", text, fields={"said": text})
    assert (line["message"], line["said"], line["level"], line["logger"]) == (f"said: {text}", text, "INFO", "tests")
    assert line["time"].endswith("Z")
    assert abs(datetime.fromisoformat(line["time"]) - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["plain", "天"])
def test_other_values_are_logged_as_json_or_described(text: str) -> None:
    fields = {"object": {"a": [1, None, text]}, "large": 2**80, "error": ValueError("odd"), "other": object}
    line = line_of(text, fields=fields)
    assert (line["object"], line["large"]) == ({"a": [1, None, text]}, 2**80)
    assert "odd" in line["error"] and "object" in line["other"]


@pytest.mark.parametrize("text", ["plain", "天"])
def test_a_text_of_another_class_is_a_text(text: str) -> None:
    line = line_of(mark_safe(text), fields={"said": [mark_safe(text)]})
    assert (line["message"], line["said"]) == (text, [text])


def test_recursive_value_is_logged() -> None:
    circle: list[Any] = ["odd"]
    circle.append(circle)
    line = line_of("said", fields={"circle": circle})
    assert "odd" in line["circle"] and "said" in line["message"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_an_error_brings_its_stack(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        line = line_of("failed", failed=True)
    assert line["exc_info"].startswith("Traceback") and line["exc_info"].endswith(f"ValueError: {text}")
