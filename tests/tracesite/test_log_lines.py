"""Whatever is logged is a line of JSON, in ASCII."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .conftest import LogLines

logger = logging.getLogger("tests.lines")


@pytest.mark.parametrize(
    "text",
    ["plain", 'a "quoted" \\ line\nand another', "天气", "\x9b31m \u202e\u2028 \x00\x1b", "half \ud83d a pair"],
    ids=["plain", "quoted", "chinese", "controls", "surrogate"],
)
@pytest.mark.parametrize("where", ["message", "field"])
def test_any_text_comes_back_from_its_line(text: str, where: str, log_lines: LogLines) -> None:
    if where == "message":
        logger.warning("said: %s", text)
    else:
        logger.warning("said", extra={"said": text})
    (line,) = log_lines()
    assert (line["message"], line.get("said")) == ((f"said: {text}", None) if where == "message" else ("said", text))
    assert abs(datetime.fromisoformat(line["time"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert line["time"].endswith("Z")


def test_lines_are_ascii(capsys: pytest.CaptureFixture[str], log_lines: LogLines) -> None:
    (handler,) = (each for each in logging.getLogger().handlers if each.name == "stderr")
    record = logger.makeRecord("天", logging.INFO, "", 0, "%s", ("\x9b\u202e",), None, extra={"request_id": None})
    assert handler.format(record).isascii()


@pytest.mark.parametrize(
    ("value", "said"),
    [({"a": [1, None]}, {"a": [1, None]}), (ValueError("odd 上"), "odd 上"), (2**80, 2**80)],
    ids=["object", "error", "large"],
)
def test_what_is_no_text_is_said_as_json_or_described(value: Any, said: Any, log_lines: LogLines) -> None:
    logger.warning("said", extra={"said": value})
    (line,) = log_lines()
    assert line["said"] == said or str(said) in line["said"]


def test_an_error_brings_its_stack(log_lines: LogLines) -> None:
    try:
        raise ValueError("天 \ud83d")
    except ValueError:
        logger.exception("failed")
    (line,) = log_lines()
    assert line["exc_info"].startswith("Traceback") and line["exc_info"].endswith("ValueError: 天 \ud83d")
