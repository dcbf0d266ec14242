"""Show trace content safely: escaped, without hidden characters, long values folded.

Trace content is hostile. Besides markup it may hold terminal escapes, characters that change the reading direction, and
invisible characters that a model reads; they are shown as named marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import F, Func, IntegerField
from django.utils.html import conditional_escape, escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.moments import ago as ago
from access_app.moments import moment as moment

from .sql.beginnings import Beginning, PrettyBeginning, pretty

HEAD_CHARACTERS = 500
HEAD_LINES = 12
# A value slightly longer than its head is shown whole, because a fold that hides two words is a nuisance.
_SLACK = 1.25

# C0 and C1 controls except tab and line feed; direction marks, embeddings, overrides and isolates; zero width space,
# word joiner and invisible operators; line and paragraph separators; the tag characters. Zero width joiners stay, because
# emoji and several scripts need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

MOST_MARKS = 2_000
"""Hidden characters of a text that are named; further ones become \ufffd, because a name is 50 times as long."""

_DIRECTION_MARKS = re.compile("[\u061c\u200e\u200f]")

_CONTROLS = (
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
)


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """A value for display: its first lines, the rest to fold, and its sizes, because text beyond a limit is left out."""

    head: str
    rest: str = ""
    shown_bytes: int = 0
    total_bytes: int = 0

    @property
    def is_cut(self) -> bool:
        return self.total_bytes > self.shown_bytes

    def __bool__(self) -> bool:
        return self.head != ""


def visible(text: str) -> SafeString:
    """Return `text` as HTML: escaped, line ends as line feeds, hidden characters as named marks, at most MOST_MARKS."""
    escaped = escape(text.replace("\r\n", "\n"))
    named = _HIDDEN.sub(_mark, escaped, count=MOST_MARKS)
    return mark_safe(_HIDDEN.sub("\ufffd", named))  # noqa: S308 - escaped above; a mark holds letters and digits only


def marked(text: str, terms: Collection[str]) -> SafeString:
    """Return `text` as `visible` does, with each of `terms` in it marked."""
    if not terms:
        return visible(text)
    # The longest first, because one term may begin another. Every second piece is a term.
    pieces = re.split(f"({'|'.join(map(re.escape, sorted(terms, key=len, reverse=True)))})", text)
    return format_html_join(
        "",
        "{}{}",
        (
            (visible(piece), format_html("<mark>{}</mark>", visible(term)) if term else "")
            for piece, term in zip(pieces[::2], [*pieces[1::2], ""], strict=True)
        ),
    )


def plainly_visible(text: str) -> str:
    """Return `text` for a terminal: line ends as line feeds, other hidden characters by their code points in brackets."""
    return _HIDDEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", text.replace("\r\n", "\n"))


def for_scripts() -> str:
    """Return the rules of `visible` as JSON: a regular expression for hidden characters, and the names of controls."""
    return json.dumps(
        {"pattern": _HIDDEN.pattern, "most": MOST_MARKS, "names": {**dict(enumerate(_CONTROLS)), 0x7F: "DEL"}}
    )


def excerpt(text: str | None, total_bytes: int | None = None) -> Excerpt:
    """Split `text` for folding. `total_bytes` is the size of the whole value if `text` is only its beginning."""
    text = text or ""
    shown_bytes = len(text.encode())
    text = text.replace("\r\n", "\n")
    end = _head_end(text)
    return Excerpt(head=text[:end], rest=text[end:], shown_bytes=shown_bytes, total_bytes=total_bytes or shown_bytes)


def json_excerpt(text: str | None, total_bytes: int | None = None) -> Excerpt:
    """Return the excerpt of a `pretty_json` text; an empty one for an empty object or list."""
    return excerpt("") if text in ("{\n}", "[\n]") else excerpt(text, total_bytes)


def one_line(text: str | None, limit: int) -> str:
    """Return `text` as a name: on one line, at most `limit` characters, and \ufffd for every hidden character.

    Direction marks, which Arabic and Hebrew need, are left out: a name is isolated (`bdi`), and \ufffd looks like damage.
    """
    line = _HIDDEN.sub("\ufffd", " ".join(_DIRECTION_MARKS.sub("", text or "").split()))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def is_plain(text: str) -> bool:
    """Return whether `text` has no hidden characters."""
    return _HIDDEN.search(text) is None


def hidden_count(text: str) -> int:
    """Return the number of hidden characters of `text`."""
    return len(_HIDDEN.findall(text))


def duration(milliseconds: float | None) -> str:
    """Format a duration for people; "" if unknown."""
    if milliseconds is None:
        return ""
    if milliseconds < 999.5:
        return _("%(number)d ms") % {"number": round(milliseconds)}
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return _("%(number).1f s") % {"number": seconds}
    whole = round(seconds)
    if whole < 3600:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": whole // 60, "seconds": whole % 60}
    return _("%(hours)d h %(minutes)d min") % {"hours": whole // 3600, "minutes": whole // 60 % 60}


def share(part: int, whole: int) -> str:
    """Format a part of a whole as a percentage, never 0 % or 100 % for what is not; "" for a part of nothing."""
    if not whole:
        return ""
    percent = 100 * part / whole
    digits = 0 if percent >= 10 or part in (0, whole) else 1
    shown = min(max(round(percent, digits), 0.1 if part else 0), 100 if part == whole else 99.9)
    return _("%(percent)s%%") % {"percent": f"{shown:g}"}


def cost(usd: Decimal | None) -> str:
    """Format an amount for people: "$12.30", "$0.0123", two digits of smaller ones; "—" if unknown."""
    if usd is None:
        return "—"
    if usd >= 1 or not usd:
        return f"${usd:,.2f}"
    return f"${usd:.{max(4, 1 - usd.adjusted())}f}"


def price(usd: Decimal | None) -> str:
    """Format a price with all its digits, at least two of them decimals; empty if there is none."""
    if usd is None:
        return ""
    digits = -int(usd.normalize().as_tuple().exponent)
    return f"${usd:,.{max(2, digits)}f}"


def total_cost(row: Any) -> SafeString:
    """Format the cost of a message, a session or a sum of them for a list; a title says how many of its answers have none.

    Empty where no model was used, such as in messages of users. What goes on says that it is the cost so far.
    """
    if not row.unknown_count:
        return SafeString("" if row.cost is None else _so_far(row))
    return format_html('<span title="{}">{}</span>', _unpriced(row), _so_far(row))


def total_cost_in_words(row: Any) -> str:
    """Format the cost of a message or session for its page: "≥ $0.50 (1 answer without a known cost)"; without such answers as in a
    list."""
    if not row.unknown_count:
        return total_cost(row)
    return _with_more(_so_far(row), _unpriced(row))


def _with_more(text: str, more: str) -> str:
    return _("%(text)s (%(more)s)") % {"text": text, "more": more}


def _so_far(row: Any) -> str:
    if row.cost is None:
        return cost(None)
    known = f"≥ {cost(row.cost)}" if row.unknown_count else cost(row.cost)
    return _("%(cost)s so far") % {"cost": known} if row.goes_on else known


def _unpriced(row: Any) -> str:
    words = ngettext(
        "%(number)d answer without a known cost", "%(number)d answers without a known cost", row.unknown_count
    )
    return words % {"number": row.unknown_count}


def tokens_in_words(input_tokens: int, output_tokens: int) -> str:
    """Format the tokens of a run or step: "875 (711 in, 164 out)"."""
    return _with_more(f"{input_tokens + output_tokens:,}", tokens_by_kind(input_tokens, output_tokens))


def tokens_by_kind(input_tokens: int, output_tokens: int) -> str:
    """Format tokens without their sum: "711 in, 164 out"."""
    return _("%(input)s in, %(output)s out") % {"input": f"{input_tokens:,}", "output": f"{output_tokens:,}"}


def tokens_as_counted(input_tokens: int, output_tokens: int) -> str:
    """Return stored sums in words, which have the input as its producer counts it: see docs/cost.md."""
    return f"{tokens_by_kind(input_tokens, output_tokens)} ({_('without those cached beside the input')})"


def tokens_with_cached(input_tokens: int, cached_tokens: int, output_tokens: int) -> str:
    """Format tokens without their sum, of which some were read from a cache: "711 in, 12,000 cached, 164 out"."""
    counts = {"input": f"{input_tokens:,}", "cached": f"{cached_tokens:,}", "output": f"{output_tokens:,}"}
    return _("%(input)s in, %(cached)s cached, %(output)s out") % counts


def message_duration(message: Any) -> SafeString:
    """Format the duration of a message: from its beginning to its end, or until now if it goes on. Of a complete one without a
    known end it is the sum of its steps, and says so. Every page shows it like this."""
    text, title = _duration_and_title(message)
    words = _("%(duration)s in all steps") % {"duration": text} if message.is_completed else so_far(text)
    return format_html('<span title="{}">{}</span>', title, words) if title else conditional_escape(text)


def listed_duration(message: Any) -> SafeString:
    """Format the duration of a message for a list, where only the title says that it is a sum of steps."""
    text, title = _duration_and_title(message)
    words = text if message.is_completed else so_far(text)
    return format_html('<abbr title="{}">{}</abbr>', title, words) if title else conditional_escape(text)


def run_time(session: Any, last_run: Any) -> str:
    """Format the sum of the durations of the runs of a session, of which the last one counts until now if it goes on; "" if none is
    known."""
    if last_run is not None and not last_run.is_completed:
        return so_far(duration(session.duration_ms - (last_run.duration_ms or 0) + last_run.took_ms))
    # The sum is 0, too, if no duration is known.
    is_known = session.duration_ms or (last_run is not None and last_run.took_ms == 0)
    return duration(session.duration_ms) if is_known else ""


def so_far(text: str) -> str:
    return _("%(duration)s so far") % {"duration": text}


def _duration_and_title(message: Any) -> tuple[str, str]:
    """Return the duration of a message in words, and what it is if that is not the time from its beginning to its end."""
    text = duration(message.took_ms)
    if message.completed_at is not None or (message.is_completed and not text):
        return text, ""
    if message.is_completed:
        return text, _("Sum of the durations of its steps, because its end is unknown")
    return text, _("Since it began")


def age(instant: datetime | None) -> str:
    """Format the time since an instant: "7 hours, 56 minutes"; "" if unknown.

    Django joins the units as it joins a list; Chinese writes units without a comma.
    """
    return "" if instant is None else timesince(instant).replace("、", " ")


def first_characters(field: str, limit: int) -> Beginning:
    """Return the expression for the beginning of a text column, so that the database sends no more."""
    return Beginning(field, limit)


def pretty_json(field: str, limit: int) -> Beginning:
    """Return the expression for the beginning of a JSON column as indented text, with exact numbers and non-ASCII kept."""
    return PrettyBeginning(pretty(field), limit)


def size_of(field: str) -> Func:
    """Return the expression for the bytes of a text column. PostgreSQL reads only the header of a large value for it."""
    return Func(F(field), function="octet_length", output_field=IntegerField())


def size_of_json(field: str) -> Func:
    """Return the expression for the bytes of a JSON column as `pretty_json` writes it."""
    return Func(pretty(field), function="octet_length", output_field=IntegerField())


def _head_end(text: str) -> int:
    """Return the end of the head: after HEAD_LINES lines or about HEAD_CHARACTERS characters, or of the whole text."""
    lines_end = _end_of_line(text, HEAD_LINES)
    if len(text) <= HEAD_CHARACTERS * _SLACK and _end_of_line(text, int(HEAD_LINES * _SLACK)) == len(text):
        return len(text)
    if lines_end <= HEAD_CHARACTERS:
        return lines_end
    # Between two words if possible, so that no word, number or joined emoji is split.
    space = max(text.rfind(" ", HEAD_CHARACTERS - 60, HEAD_CHARACTERS), text.rfind("\n", 0, HEAD_CHARACTERS))
    return space + 1 if space > HEAD_CHARACTERS - 60 else HEAD_CHARACTERS


def _end_of_line(text: str, count: int) -> int:
    end = 0
    for _line in range(count):
        end = text.find("\n", end) + 1
        if end == 0:
            return len(text)
    return end


def _mark(match: re.Match[str]) -> str:
    code = ord(match[0])
    # Short names, because few fonts have the control pictures of Unicode (U+241B).
    name = _CONTROLS[code] if code < 0x20 else "DEL" if code == 0x7F else f"U+{code:04X}"
    return f'<span class="mark" title="U+{code:04X}">{name}</span>'
