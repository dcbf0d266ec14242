"""Lines of Markdown with their code, and texts in tags."""

from __future__ import annotations

import pytest

from tracesite_sdk.transcripts.parsing.markdown import markdown_lines, split_tags


def code_in(text: str) -> list[str]:
    return [line.text for line in markdown_lines(text) if line.is_code]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\n```py\nb\n```\nc", ["```py", "b", "```"]),
        ("````\n```\nb\n```\n````\nc", ["````", "```", "b", "```", "````"]),
        ("~~~ a `b`\n```\n~~~", ["~~~ a `b`", "```", "~~~"]),
        ("``` a `b` ```\nc", []),
        ("   ```\na\n ``` \nb", ["   ```", "a", " ``` "]),
        ("    ```\na\n```\nb", []),
        ("```\na\n```\n```\nnot closed\n````py", ["```", "a", "```"]),
        ("```py\na\n```js\nb\n```", ["```py", "a", "```js", "b", "```"]),
    ],
)
def test_code_is_what_stands_between_two_fences(text: str, code: list[str]) -> None:
    assert code_in(text) == code
    assert "\n".join(line.text for line in markdown_lines(text)) == text


def test_lines_have_numbers_places_and_what_the_fence_says() -> None:
    text = "a\n```py\nb\n```\nc\n"
    assert [tuple(line) for line in markdown_lines(text, 2, 13)] == [
        (1, 2, "```py", "py", True),
        (2, 8, "b", "py", False),
        (3, 10, "```", "py", True),
    ]


@pytest.mark.parametrize(
    ("said", "typed", "added"),
    [
        ("Go", "Go", ""),
        ("Go <info>x</info> now", "Go\n\nnow", "<info>x</info>"),
        ("<task>Go</task>\n<info>x</info><task> now</task>", "Go\n\nnow", "<info>x</info>"),
        ("<info>x", "<info>x", ""),
        ("<info><info>x</info>", "", "<info><info>x</info>"),
        ("</info><task>x<info>y</info>", "</info><task>x", "<info>y</info>"),
    ],
)
def test_split_tags_tells_typed_from_added_text(said: str, typed: str, added: str) -> None:
    assert split_tags(said, ("task",), ("info",)) == (typed, added)


def test_split_tags_without_tags_returns_all_as_typed() -> None:
    assert split_tags("<>a</>", (), ()) == ("<>a</>", "")
