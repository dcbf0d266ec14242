"""Markdown of answers and thoughts: what it renders, what it refuses, and that nothing that a text has vanishes."""

from __future__ import annotations

import re
import time
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages_app import code_colours
from messages_app.code_colours import coloured
from messages_app.markdown import LONGEST_HEAD, WORK, Prose, Shown, plain
from messages_app.safe_text import HEAD_CHARACTERS, MOST_MARKS, excerpt, hidden_count, visible
from sdk.tests.growth import without_collections

REL = 'rel="noopener noreferrer nofollow"'
LINK = f'<a href="https://example.com/" {REL}>a</a>'
TAGS = {
    *("a", "blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "ul"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
BIDI = "\u202e"
MARK = '<span class="mark" title="U+202E">U+202E</span>'


def shown(text: str, prose: Prose | None = None) -> Shown:
    return (prose or Prose()).shown(excerpt(text))


def html(text: str) -> str:
    """Return the HTML of a text that is rendered, whole."""
    found = shown(text)
    assert found.is_prose
    return (found.head + found.rest).strip()


def text_of(html: str) -> str:
    return unescape(re.sub("<[^<>]*>", "", html))


class Elements(HTMLParser):
    """What a page would have of a text, and the text that is seen."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(html: str) -> None:
    for tag, attributes in Elements(html).found:
        assert tag in TAGS, html
        assert attributes.keys() <= {"href", "title", "rel", "class", "start"}, html
        assert re.match("https?://|mailto:", attributes.get("href") or "https://", re.IGNORECASE), html


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**b** *i* ~~s~~ `c<d`", "<p><strong>b</strong> <em>i</em> <s>s</s> <code>c&lt;d</code></p>"),
        ("one\ntwo\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>'),
        ("> a", "<blockquote>\n<p>a</p>\n</blockquote>"),
        ("a\n\n---", "<p>a</p>\n<hr>"),
        ("```\na < b\n```", "<pre><code>a &lt; b\n</code></pre>"),
        ("上海**之行**，见 `代码`。", "<p>上海<strong>之行</strong>，见 <code>代码</code>。</p>"),
        ("[a](https://example.com/)", f"<p>{LINK}</p>"),
        ("<mailto:a@b.c>", f'<p><a href="mailto:a@b.c" {REL}>mailto:a@b.c</a></p>'),
        ("[a](http://b \"see 'c'\")", f'<p><a href="http://b" title="see \'c\'" {REL}>a</a></p>'),
        ("https://example.com/ is no link", "<p>https://example.com/ is no link</p>"),
        # A link needs a name.
        ("[](http://b)", f'<p><a href="http://b" {REL}>http://b</a></p>'),
        ("[ ](http://b)", f'<p><a href="http://b" {REL}>http://b </a></p>'),
    ],
)
def test_text_is_rendered(text: str, expected: str) -> None:
    assert html(text).replace("&#x27;", "'") == expected


def test_table_is_rendered_with_classes_for_its_sides() -> None:
    table = html("| 城市 | n |\n|:-:|--:|\n| 奥斯陆 | **1** |")
    assert re.sub(r"\s*\n\s*", "", table) == (
        '<table><thead><tr><th class="center">城市</th><th class="right">n</th></tr></thead>'
        '<tbody><tr><td class="center">奥斯陆</td><td class="right"><strong>1</strong></td></tr></tbody></table>'
    )


@pytest.mark.parametrize("level", range(1, 7))
def test_headings_are_paragraphs_because_the_page_has_headings(level: int) -> None:
    assert html(f"{'#' * level} a") == f'<p class="h{level}">a</p>'
    assert html("a\n===") == '<p class="h1">a</p>'


@pytest.mark.parametrize(
    "address",
    [
        *("javascript:alert(1)", "JaVaScRiPt:alert(1)", "javascript&colon;alert(1)", "&#106;avascript:alert(1)"),
        *("&#x6A;avascript:alert(1)", "java\tscript:alert(1)", "<java\tscript:alert(1)>", "javascript\\:alert(1)"),
        *(
            "%6Aavascript:alert(1)",
            "\x01javascript:alert(1)",
            "vbscript:x",
            "data:text/html,x",
            "DATA:image/png;base64,x",
        ),
        *(
            "file:///etc/passwd",
            "//evil.example/",
            "/admin/logout/",
            "admin/",
            "?a",
            "#a",
            "blob:x",
            "view-source:http://a",
        ),
        *("javascript://http://a/%0aalert(1)", " javascript:alert(1)", "http:javascript:alert(1)", "ftp://a/"),
    ],
)
def test_other_addresses_are_no_links(address: str) -> None:
    for text in (f"[a]({address})", f"![a]({address})", f"<{address}>", f"[a]: {address}\n\n[a]"):
        found = shown(text)
        assert "<a" not in found.head, text
        assert_harmless(found.head)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '<a href="javascript:alert(1)">x</a>',
        "<svg/onload=alert(1)>",
        "<!-- ignore all of this -->",
        "<![CDATA[x]]>",
        "<?php x ?>",
        "<div\n\nonclick=x>",
        "```html\n<script>alert(1)</script>\n```",
        "```</code><script>\nx\n```",
        "`<script>`",
        '[a](http://b "\\"><script>x</script>")',
        "[a](http://b\"onmouseover='x')",
        "[<img src=x>](http://b)",
        "|<b>|\n|-|\n|<script>x</script>|",
        "&lt;script&gt;",
    ],
)
def test_html_is_shown_as_text(text: str) -> None:
    found = html(text)
    assert_harmless(found)
    assert not {tag for tag, _ in Elements(found).found} & {"script", "img", "svg", "div", "b"}


def test_image_is_a_link_and_nothing_is_loaded() -> None:
    assert html("![p](https://evil.example/p.png?key=1)") == (
        f'<p>!<a href="https://evil.example/p.png?key=1" {REL}>p</a></p>'
    )
    assert "<a" not in html("![p](data:image/png;base64,AAAA)")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"a{BIDI}b", 1),
        (f"`a{BIDI}`", 1),
        (f"```\na{BIDI}\n```", 1),
        (f"```python\na = '{BIDI}'  # {BIDI}\n```", 2),
        (f"```py{BIDI}\na\n```", 1),
        (f"    a{BIDI}", 1),
        (f"# a{BIDI}", 1),
        (f"|a{BIDI}|\n|-|\n|b|", 1),
        (f"[a{BIDI}](https://example.com/)", 1),
        ("a&#x202e;b", 1),
        ("<https://example.com/%E2%80%AE>", 1),
    ],
)
def test_hidden_characters_are_marks_wherever_they_are(text: str, count: int) -> None:
    found = html(text)
    assert found.count(MARK) == count
    assert hidden_count(found) == 0


def test_hidden_characters_of_addresses_and_titles_are_not_passed_on() -> None:
    found = html(f'[a](https://example.com/{BIDI} "b{BIDI}")')
    assert found == f'<p><a href="https://example.com/%E2%80%AE" title="b\ufffd" {REL}>a</a></p>'
    assert hidden_count(html(f"<https://e{BIDI}xample.com/>")) == 0


@pytest.mark.parametrize(
    "text",
    [
        # The parser would remove or replace these.
        *("a\x00b", "a\x0c", "\u2028a", "a\rb", "a\x1f"),
        # It ends at this depth, and leaves out what is deeper.
        *(">" * 30 + "a", "- " * 30 + "a", "1. - > " * 10 + "a"),
        # Cells beyond the head of a table.
        *("|a|\n|-|\n|b|c|", "|a|\n|-|\n||c|", "> |a|\n> |-|\n> |b|c|"),
        # Nothing would be left to read.
        *("***", "#", "- ", "```", "[]()"),
        *("[" * 2_000, "\u202e" * (MOST_MARKS + 1), "x" * 1_000_000),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_text_that_would_lose_something_is_plain(text: str) -> None:
    found = shown(text)
    assert not found.is_prose or text == "[]()"
    if not found.is_prose:
        assert found == plain(excerpt(text))


@pytest.mark.parametrize("text", ["[INFO]: done", "[1]: https://example.com/", "a|b\nc", "|a|b|\n|-|-|\n|1|"])
def test_what_looks_like_markup_is_still_read(text: str) -> None:
    assert re.findall(r"\w+", text_of(html(text))) == re.findall(r"\w+", text)


_PIECES = st.sampled_from(
    [
        *(
            "a",
            "中",
            " ",
            "\n",
            "\n\n",
            "    ",
            "*",
            "**",
            "_",
            "~~",
            "`",
            "```",
            "```py\n",
            "#",
            "# ",
            "> ",
            "- ",
            "1. ",
        ),
        *("|", "|a|b|\n|-|-|\n", "[", "]", "(", ")", "!", "<", ">", "&", "&lt;", "&#x202e;", "\\", ":", "http://a"),
        *(
            "[a](",
            "](javascript:a)",
            "](http://b)",
            "<http://a>",
            "<b>",
            "<script>",
            '"',
            "'",
            "\t",
            "---\n",
            BIDI,
            "\x1b",
        ),
    ]
)


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_any_text_is_harmless_and_read_whole(text: str) -> None:
    found = shown(text)
    whole = found.head + found.rest
    assert_harmless(whole)
    assert hidden_count(whole) == 0
    # No letter vanishes; some stand in the attributes of links.
    for letter in "a中":
        assert whole.count(letter) >= text.count(letter), whole


# --- Folding -----------------------------------------------------------------------------------------------------------


def test_long_text_folds_between_two_blocks() -> None:
    text = "\n\n".join(f"**{number}** {'x' * 150}" for number in range(10))
    found = shown(text)
    assert found.head.count("<p>") + found.rest.count("<p>") == 10
    assert 3 <= found.head.count("<p>") < 10
    read = sum(len(block) + 2 for block in text.split("\n\n")[: found.head.count("<p>")])
    assert abs(len(text) - found.more - read) <= 1


def test_little_is_not_folded() -> None:
    found = shown("\n\n".join(["x" * 300] * 2 + ["y" * 50]))
    assert (found.head.count("<p>"), found.rest, found.more) == (3, "", 0)


def test_block_of_code_is_not_divided_by_the_fold() -> None:
    found = shown("# a\n\n```\n" + "line\n" * 60 + "```\n\n" + "x" * HEAD_CHARACTERS)
    assert found.head.count("line") == 60
    assert (found.rest.strip(), found.more) == (f"<p>{'x' * HEAD_CHARACTERS}</p>", HEAD_CHARACTERS)


@pytest.mark.parametrize(("length", "is_prose"), [(LONGEST_HEAD - 10, True), (LONGEST_HEAD + 10, False)])
def test_long_first_paragraph_is_plain_because_it_folds_anywhere(length: int, is_prose: bool) -> None:
    found = shown("x" * length + "\n\n" + "y" * 1_000)
    assert (found.is_prose, bool(found.rest)) == (is_prose, True)


# --- Bounds ------------------------------------------------------------------------------------------------------------


def test_raw_texts_are_plain() -> None:
    assert shown("**a**", Prose(raw=True)).head == "**a**"


def test_texts_beyond_the_budget_of_a_page_are_plain() -> None:
    prose = Prose()
    text = "Some *words* in a paragraph of its own.\n\n" * 40
    rendered = [shown(text, prose).is_prose for _ in range(100)]
    count = rendered.count(True)
    assert 5 < count < 100
    assert rendered == [True] * count + [False] * (100 - count)
    assert 0 <= prose.work < WORK


REPEATED = [
    *("[", "![", "[a](", "[a](<", "*", "*a ", "**a", "_a", "*_", "~~a", "`", "<", "&", "\\", ">", "> ", "- ", "1. "),
    *(
        "a\n",
        "a\n\n",
        "# a\n",
        "---\n",
        "- a\n",
        "|a|\n|-|\n",
        "```\n",
        "<http://a>",
        "[a](http://b)",
        "\u202e",
        "]",
        "!",
    ),
]


@pytest.mark.parametrize("size", [3_000, 60_000])
@pytest.mark.parametrize(
    "start", ["", ">" * 15 + "a\n", "|" + "a|" * 40 + "\n|" + "-|" * 40 + "\n", "[" * 900], ids=["", ">", "|", "["]
)
def test_time_of_a_page_is_bounded(start: str, size: int) -> None:
    shown("a")
    for piece in REPEATED:
        text = start + piece * (size // len(piece))
        prose, began = Prose(), time.thread_time()
        for _ in range(4):
            found = shown(text, prose)
            assert len(found.head + found.rest) < 60 * len(text) + 1_000
        # Several times the budget, because machines of tests are slow; without it some take a minute.
        assert time.thread_time() - began < 6 * WORK / 1e6, piece


# --- Code --------------------------------------------------------------------------------------------------------------


def test_code_has_the_colours_of_its_language() -> None:
    found = html('```python\ndef f(x):  # c\n    return "s", 1\n```')
    assert '<span class="code-language">python</span>' in found
    pieces = dict(re.findall('<span class="code-([a-z]+)">(.*?)</span>', found)[1:])
    assert (pieces["keyword"], pieces["name"], pieces["comment"], pieces["number"]) == ("return", "f", "# c", "1")


@pytest.mark.parametrize("language", sorted(code_colours.LANGUAGES))
@pytest.mark.parametrize("code", ["\ufeff\n\n a\t'b' \"c\" /* d */ # e\n<f g='h'>\n$\\", "\n", '"""', "/*", "-a\n+b\n"])
def test_colours_leave_nothing_out(language: str, code: str) -> None:
    assert text_of(coloured(code, language, 10)[0]) == text_of(visible(code))


@pytest.mark.parametrize("language", ["", "nothing", "text", "csharp", "python;x", "PYTHON\u202e"])
def test_code_in_other_languages_has_no_colours(language: str) -> None:
    assert coloured("def f(): pass", language, 10) == ("def f(): pass", 0)


def test_long_code_has_no_colours_and_time_for_colours_ends() -> None:
    code = "x = 1\n" * 3_000
    assert "<span" in coloured(code, "python", 10)[0]
    assert coloured(code * 2, "python", 10) == (code * 2, 0)
    some, seconds = coloured(code, "python", 0.001)
    assert seconds < 0.5
    assert 0 < some.count("<span") < 3_000
    assert text_of(some) == code


@pytest.mark.parametrize("language", sorted(code_colours.LANGUAGES))
def test_no_token_takes_long(language: str) -> None:
    for piece in [
        *"aA_1 \t\n\"'`/\\<{[(:=.-#$@&%?",
        "a:",
        "a=",
        "a b ",
        "/*",
        "<a",
        "${",
        "a.b",
        "\n\n",
        "\n ",
        "::",
        "==",
    ]:
        code = (piece * code_colours.MOST_CHARACTERS)[: code_colours.MOST_CHARACTERS]
        with without_collections():
            _html, seconds = coloured(code, language, 0.01)
        assert seconds < 0.5, piece


@given(st.text(max_size=300), st.sampled_from(sorted(code_colours.LANGUAGES)))
def test_colours_of_any_code_leave_nothing_out(code: str, language: str) -> None:
    code = code.replace("\r\n", "\n")
    assert text_of(coloured(code, language, 10)[0]) == text_of(visible(code))
