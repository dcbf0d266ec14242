"""Test the folding of Markdown at the width of a terminal."""

from __future__ import annotations

import pytest

from tracesite_sdk.reading.terminal import folded

LONG = "x" * 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("", ""),
        (f"{'ab ' * 14}ab", "ab ab ab ab ab ab ab ab ab ab ab ab ab\nab ab"),
        (f"- {'ab ' * 14}ab", "- ab ab ab ab ab ab ab ab ab ab ab ab ab\n  ab ab"),
        (f"  - {'ab ' * 14}ab", "  - ab ab ab ab ab ab ab ab ab ab ab ab\n    ab ab ab"),
        (f"12. {'ab ' * 14}ab", "12. ab ab ab ab ab ab ab ab ab ab ab ab\n    ab ab ab"),
        (f"- a {LONG} b", f"- a\n  {LONG}\n  b"),
        (f"```\n- {'ab ' * 20}\n```\nab", f"```\n- {'ab ' * 20}\n```\nab"),
        (f"````\n```\n{LONG} {LONG}\n````", f"````\n```\n{LONG} {LONG}\n````"),
        (f"`{LONG}` `b`", f"`{LONG}`\n`b`"),
        (f"- {'ab ' * 9}more: `tracesite show run-1 3/0`", f"- {'ab ' * 9}more:\n  `tracesite show run-1 3/0`"),
        (f"- {'天' * 25}", f"- {'天' * 19}\n  {'天' * 6}"),
        ("a  b", "a  b"),
        (f"- a{' ' * 60}b", "- a\n  b"),
    ],
)
def test_text_is_folded(text: str, expected: str) -> None:
    assert folded(text, 40) == expected


def test_terminal_is_taken_for_forty_columns_wide() -> None:
    assert folded("ab " * 14, 3) == folded("ab " * 14, 40)


def test_hostile_line_takes_linear_time() -> None:
    assert len(folded("`tracesite " * 20_000, 40)) > 200_000
