"""Show answers and thoughts as Markdown: a safe part of it, within a budget of work for each page.

The texts are hostile. The parser passes no HTML through and makes no images; nh3 removes what is not on a list from what it
made. Nothing that a text has vanishes: where Markdown would leave something out, the text is shown as plain text, and so is a
text that would take too long. Hidden characters are shown as `safe_text.visible` shows them.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import nh3
from django.utils.html import format_html, strip_tags
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from .code_colours import CLASSES, coloured
from .safe_text import HEAD_CHARACTERS, MOST_MARKS, Excerpt, hidden_count, one_line, visible

WORK = 120_000
"""Microseconds of parsing for the texts of one page, as `_work` estimates them."""
COLOUR_SECONDS = 0.05
"""Processor time for the colours of the code of one page."""
LONGEST_HEAD = 4 * HEAD_CHARACTERS
"""Before the fold, but for a list, table or block of code at the beginning, which may be four times as long. A text whose first
block is longer is shown as plain text, which folds anywhere: a pasted log is one long paragraph."""
MOST_NESTED = 20

# The parser strips these from the ends of paragraphs or replaces them.
_LOST = re.compile("[\x00\x0b-\x0d\x1c-\x1f\x85\u2028\u2029]")
_MARKUP = "[]<&|*_~\\"
_LITTLE_MARKUP = "`!>-"
_CLOSED = re.compile(r"\[[^][]*\]")
_NESTED = re.compile(r"^(?:[ \t]*(?:>|[-+*][ \t]|\d{1,9}[.)][ \t]))+", re.MULTILINE)
_BELOW_HEAD_OF_TABLE = re.compile(r"^[ \t>]*[|:-][|: \t-]*$", re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")
_ADDRESS = re.compile("(?:https?://|mailto:)", re.IGNORECASE)

_ALIGNED = {"left", "center", "right"}
_ALLOWED: dict[str, Any] = {
    "tags": {
        *("a", "blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "ul"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    },
    "attributes": {"a": {"href", "title"}, "ol": {"start"}, "span": {"title"}},
    "allowed_classes": {
        "p": {f"h{level}" for level in range(1, 7)},
        "span": {"mark", "code-language", *CLASSES},
        "td": _ALIGNED,
        "th": _ALIGNED,
    },
    "url_schemes": {"http", "https", "mailto"},
    "url_relative": "deny",
    "link_rel": "noopener noreferrer nofollow",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A text as HTML: its beginning, and the rest to fold, which has `more` characters."""

    head: SafeString
    rest: SafeString
    more: int
    is_prose: bool


def plain(value: Excerpt) -> Shown:
    """Return a text as it is stored."""
    return Shown(head=visible(value.head), rest=visible(value.rest), more=len(value.rest), is_prose=False)


@dataclass(kw_only=True)
class Prose:
    """Renders the texts of one page, as long as its budgets last; afterwards, or if `raw`, texts are plain."""

    raw: bool = False
    work: float = WORK
    colour_seconds: float = COLOUR_SECONDS

    def shown(self, value: Excerpt) -> Shown:
        """Return a text as Markdown, folded between two blocks of it; as plain text if it is none that can be rendered."""
        text = value.head + value.rest
        if self.raw or _LOST.search(text) or hidden_count(text) > MOST_MARKS or (work := _work(text)) > self.work:
            return plain(value)
        self.work -= work
        lines = text.split("\n")
        tokens = _PARSER.parse(text)
        if _leaves_out(tokens, lines):
            return plain(value)
        fold, end = _fold(tokens, lines, len(value.head))
        if not fold:
            return plain(value)
        # A fold that hides little is a nuisance.
        if not value.rest or len(text) - end < end / 4:
            fold, end = len(tokens), len(text)
        head, rest = self._html(tokens[:fold]), self._html(tokens[fold:])
        # Such as a line of asterisks, which is a rule.
        if not strip_tags(head).strip():
            return plain(value)
        return Shown(head=head, rest=rest, more=len(text[end:].strip("\n")), is_prose=True)

    def colour(self, code: str, language: str) -> SafeString:
        """Return `code` in the colours of its language, as long as the time lasts."""
        html, seconds = coloured(code, language, self.colour_seconds)
        self.colour_seconds -= seconds
        return html

    def _html(self, tokens: Sequence[Token]) -> SafeString:
        html = _PARSER.renderer.render(tokens, _PARSER.options, {"prose": self})
        return mark_safe(nh3.clean(html, **_ALLOWED))  # noqa: S308 - what is not on the list was removed


_Tokens = Sequence[Token]
_Env = MutableMapping[str, Any]


class _Html(RendererHTML):
    """The HTML of tokens: hidden characters are marks, headings are paragraphs, because a page has headings of its own."""

    def text(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        return visible(tokens[idx].content)

    def code_inline(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        return format_html("<code>{}</code>", visible(tokens[idx].content))

    def code_block(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        return format_html("<pre><code>{}</code></pre>", visible(tokens[idx].content))

    def fence(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        info = tokens[idx].info.strip()
        label = format_html('<span class="code-language">{}</span>', visible(info)) if info else ""
        code = env["prose"].colour(tokens[idx].content, info.split(maxsplit=1)[0] if info else "")
        return format_html("<pre>{}<code>{}</code></pre>", label, code)

    def heading_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        return format_html('<p class="{}">', tokens[idx].tag)

    def heading_close(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        return "</p>"

    def th_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        # The parser writes a style, which the policy of our pages forbids.
        side = str(tokens[idx].attrGet("style") or "").removeprefix("text-align:")
        return format_html('<{} class="{}">', tokens[idx].tag, side) if side else f"<{tokens[idx].tag}>"

    td_open = th_open

    def link_open(self, tokens: _Tokens, idx: int, options: OptionsDict, env: _Env) -> str:
        address, title = (str(tokens[idx].attrGet(name) or "") for name in ("href", "title"))
        titled = format_html(' title="{}"', one_line(title, HEAD_CHARACTERS)) if title else ""
        opening = format_html('<a href="{}"{}>', address, titled)
        follows = tokens[idx + 1]
        # A link needs a text that one can see and click.
        is_empty = follows.type == "link_close" or (follows.type == "text" and not follows.content.strip())
        return opening + visible(address) if is_empty else opening


class _Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Return whether something becomes a link. A relative one would lead to a page of ours; its text is shown as it is."""
        return _ADDRESS.match(url) is not None


# Line ends stay, as in a chat. An image becomes "!" and a link. A definition of a reference would be left out of the text.
_PARSER = (
    _Parser("commonmark", {"html": False, "breaks": True, "maxNesting": MOST_NESTED}, renderer_cls=_Html)
    .enable(["table", "strikethrough"])
    .disable(["image", "reference"])
)


def _work(text: str) -> float:
    """Return about the most microseconds that the parser and the renderer need for a text.

    Usual texts take half of it; no text of many tried, made of repeated pieces of markup, took more than double.
    """
    lines = text.count("\n") + 1
    nested = min(max((len(each[0]) for each in _NESTED.finditer(text)), default=0), MOST_NESTED)
    # The parser gives each line of a table all cells of its head.
    cells = sum(_cells(block) for block in text.split("\n\n") if "|" in block)
    return (
        0.2 * len(text)
        + 30 * text.count("<")
        + 20 * sum(map(text.count, _MARKUP))
        + 4 * sum(map(text.count, _LITTLE_MARKUP))
        + 30 * lines * (1 + nested / 8)
        + 25 * cells
        # For each bracket the parser looks for its partner.
        + _CLOSED.sub("", text).count("[") * len(text) / 40
        + 10 * hidden_count(text)
    )


def _cells(block: str) -> int:
    """Return the most cells that a block has without a mark of their own, if it is a table."""
    columns = max((each.count("|") for each in _BELOW_HEAD_OF_TABLE.findall(block)), default=0)
    return max((block.count("\n") + 1) * (columns + 1) - block.count("|"), 0) if columns else 0


def _leaves_out(tokens: Sequence[Token], lines: Sequence[str]) -> bool:
    """Return whether the parser left something out: below the deepest level, or cells beyond the head of a table."""
    columns = 0
    for token in tokens:
        if token.level >= MOST_NESTED - 1:
            return True
        columns = 0 if token.type == "table_open" else columns + (token.type == "th_open")
        if token.type == "tr_open" and columns and token.map:
            row = lines[token.map[0]].lstrip("> \t").rstrip().removeprefix("|").removesuffix("|")
            if len(_CELL_END.split(row)) > columns:
                return True
    return False


def _fold(tokens: Sequence[Token], lines: Sequence[str], head: int) -> tuple[int, int]:
    """Return the number of tokens and characters before the fold: the first blocks that have `head` characters together; no
    token if the first block is too long."""
    ends = list(accumulate((len(line) + 1 for line in lines), initial=0))
    fold = end = last = 0
    limit = LONGEST_HEAD * (1 if tokens and tokens[0].type == "paragraph_open" else 4)
    for number, token in enumerate(tokens, 1):
        if token.level == 0 and token.map:
            last = ends[token.map[1]]
        if token.level == 0 and token.nesting <= 0:
            if last > limit:
                break
            fold, end, limit = number, last, LONGEST_HEAD
            if end >= head:
                break
    return fold, end
