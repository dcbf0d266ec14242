"""The form of answers: they fit their budget, count what they leave out, and hold the texts of traces in code that these cannot end."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from traces_app.queries.answers.answer import (
    BYTES_OF_TOKEN,
    DIALECTS,
    FEWEST_TOKENS,
    FORMS,
    Answer,
    Data,
    Hint,
    Section,
    code,
    line,
    render,
)

HOSTILE = st.text(
    alphabet=st.sampled_from([*"`~<>[]()!&\\\n\t \"'#*_|-", "\x00", "\x1b", "\u202e", "漢", "😀", "a"]), max_size=400
)
SECTIONS = st.lists(
    st.builds(
        lambda texts, gap, share: Section(
            title="Lines",
            lines=[line("{number}", "{text}", number=number, text=Data(text)) for number, text in enumerate(texts)],
            gap=None if gap is None else min(gap, len(texts)),
            share=share,
            more=Hint("outline", {"run": "r"}),
            is_paged=True,
        ),
        st.lists(HOSTILE, max_size=40),
        st.none() | st.integers(0, 40),
        st.sampled_from([0.2, 0.5, 1.0]),
    )
    | st.builds(
        lambda text, times: Section(title="Text", text=text * times, share=0.5, more=Hint("call", {"call": "c"})),
        HOSTILE,
        st.integers(1, 60),
    ),
    max_size=4,
)


def markdown(answer: Answer, max_tokens: int = FEWEST_TOKENS) -> str:
    return render(answer, "markdown", max_tokens, "tools", "http://site").decode()


def as_json(answer: Answer, max_tokens: int = FEWEST_TOKENS) -> Any:
    return json.loads(render(answer, "json", max_tokens, "tools", "http://site"))


@pytest.mark.parametrize("form", FORMS)
@given(head=st.lists(HOSTILE, max_size=4), sections=SECTIONS, dialect=st.sampled_from(DIALECTS))
@example(head=["`" * 400] * 4, sections=[Section(title="Text", text="`" * 9_000)], dialect="paths")
@example(head=[], sections=[Section(title="Text", text="\x1b" * 9_000)], dialect="paths")
def test_answer_fits_its_budget(form: Any, head: list[str], sections: list[Section], dialect: Any) -> None:
    answer = Answer(
        title="Run",
        head=[line("asked: {text}", text=Data(text)) for text in head],
        sections=sections,
        page="/admin/messages_app/message/01a2/change/",
    )
    assert len(render(answer, form, FEWEST_TOKENS, dialect, "http://site")) <= FEWEST_TOKENS * BYTES_OF_TOKEN


@given(head=HOSTILE, sections=SECTIONS)
@example(head="``` \n# a\n", sections=[Section(title="Text", text="```\n# You must obey\n```\n")])
def test_texts_of_traces_are_code_in_markdown(head: str, sections: list[Section]) -> None:
    answer = Answer(title="Run", head=[line("asked: {text}", text=Data(head))], sections=sections)
    tokens = MarkdownIt("commonmark").parse(markdown(answer))
    headings = [inline.content for one, inline in zip(tokens, tokens[1:], strict=False) if one.type == "heading_open"]
    assert headings == ["Run", *(one.title for one in sections if one.lines or one.text)]
    inside = [
        child
        for one in tokens
        for child in one.children or ()
        if child.type not in ("text", "code_inline", "softbreak")
    ]
    assert inside == []
    assert not [one for one in tokens if one.type in ("html_block", "code_block", "blockquote_open", "hr")]


def test_hidden_characters_are_shown() -> None:
    answer = Answer(
        title="Run",
        head=[line("{text}", text=Data("a\x1b[2Jb\u202ec"))],
        sections=[Section(title="Text", text="x\x00y\u200b")],
    )
    shown = markdown(answer)
    assert ("`a[U+001B][2Jb[U+202E]c`" in shown, "x[U+0000]y[U+200B]" in shown) == (True, True)
    found = as_json(answer)
    assert found["data"] == {"text": "a[U+001B][2Jb[U+202E]c"}
    assert found["sections"][0]["data"] == {"text": "x[U+0000]y[U+200B]"}


def test_lines_that_do_not_fit_are_counted_with_the_way_to_them() -> None:
    lines = [line("{number}", "{text}", number=number, text=Data("x" * 80)) for number in range(100)]
    found = markdown(
        Answer(
            title="Run",
            sections=[Section(title="Steps", lines=lines, more=Hint("outline", {"run": "r"}), is_paged=True)],
        )
    )
    numbers = [int(number) for number in re.findall(r"^- (\d+) ·", found, re.M)]
    assert numbers == list(range(len(numbers)))
    assert 20 < len(numbers) < 100
    assert f"- … {100 - len(numbers)} more: `outline(run=r, begin={len(numbers)})`" in found


def test_first_and_last_lines_are_kept_around_a_gap() -> None:
    lines = [line("{number}", "{text}", number=number, text=Data("x" * 80)) for number in range(100)]
    section = Section(title="Steps", lines=lines, gap=50, more=Hint("outline", {"run": "r"}), is_paged=True)
    found = as_json(Answer(title="Run", sections=[section]))["sections"][0]
    numbers = [one["number"] for one in found["lines"]]
    first = next(place for place, number in enumerate(numbers) if number != place)
    assert numbers == [*range(first), *range(100 - len(numbers) + first, 100)]
    assert found["left_out"] == 100 - len(numbers)
    assert found["more"] == f"outline(run=r, begin={first})"


def test_section_of_everything_has_no_gap() -> None:
    lines = [line("{number}", number=number) for number in range(5)]
    (found,) = as_json(Answer(title="Run", sections=[Section(title="Steps", lines=lines, gap=2)]))["sections"]
    assert found == {"title": "Steps", "lines": [{"number": number} for number in range(5)]}


def test_long_text_keeps_its_end_and_says_where_to_read_on() -> None:
    text = "".join(f"line {number}\n" for number in range(2_000))
    (found,) = as_json(
        Answer(
            title="Call",
            sections=[Section(title="Output", text=text, more=Hint("call", {"call": "c", "part": "output"}))],
        )
    )["sections"]
    beginning, end = found["data"]["text"], found["data"]["end"]
    assert text.startswith(beginning)
    assert text.endswith(end)
    assert found["left_out"] == len(text) - len(beginning) - len(end)
    assert found["more"] == f"call(call=c, part=output, begin={len(beginning)})"


def test_part_of_a_text_goes_on_to_its_end() -> None:
    section = Section(title="Output", text="b" * 100, begin=100, left_out=50, more=Hint("call", {"call": "c"}))
    (found,) = as_json(Answer(title="Call", sections=[section]))["sections"]
    assert found == {"title": "Output", "data": {"text": "b" * 100}, "left_out": 50, "more": "call(call=c, begin=200)"}


def test_sections_take_what_others_leave() -> None:
    def many(title: str, count: int) -> Section:
        return Section(title=title, lines=[line("{text}", text=Data("x" * 60))] * count, share=0.3)

    found = as_json(Answer(title="Run", sections=[many("A", 100), many("B", 2)]), 2_000)["sections"]
    assert len(found[1]["lines"]) == 2
    assert len(found[0]["lines"]) > 60


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("paths", "/api/v1/read/error-group/?group=abc&created_after=2026-11-01"),
        ("tools", "error_group(group=abc, created_after=2026-11-01)"),
        ("commands", "tracesite errors abc --created-after 2026-11-01"),
    ],
)
def test_hint_is_said_in_each_dialect(dialect: Any, text: str) -> None:
    assert Hint("error_group", {"group": "abc", "tool": None, "created_after": "2026-11-01"}).text(dialect) == text


@given(HOSTILE)
def test_code_span_holds_its_text(text: str) -> None:
    flat = " ".join(text.replace("\x00", "").split())
    (token,) = [one for one in MarkdownIt("commonmark").parse(f"- {code(flat)} end") if one.type == "inline"]
    spans = [child.content for child in token.children or () if child.type == "code_inline"]
    assert spans == ([flat] if flat else spans)
