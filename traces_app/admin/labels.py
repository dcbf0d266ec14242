"""The names of sessions, messages and runs in lists and pages, and the marks of a status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from messages_app.models import Message, Session
from messages_app.safe_text import marked, one_line, visible
from traces_app.models import ToolCall
from traces_app.queries.runs.outcome import Outcome
from traces_app.queries.session_names import read_session_name

NAME_CHARACTERS = 80
"""The longest text in a list."""
_OUTCOMES: Mapping[str, Outcome] = {ToolCall.Status.ERROR: Outcome.FAILED, ToolCall.Status.PENDING: Outcome.RUNNING}
"""The outcomes that look like a status."""


def title_of(message: Message) -> str:
    """Return the title of the page of a message; an answer with everything below it is a run."""
    if message.role == Message.Role.ASSISTANT:
        return _("Run")
    return capfirst(_("%(role)s message") % {"role": message.get_role_display()})


def text_of(row: Any) -> SafeString:
    """Return the beginning of a message of a list, otherwise what there is instead of a text."""
    if text := one_line(row.shown_content, NAME_CHARACTERS):
        return marked(text, found_terms(row, "content"))
    return format_html('<span class="quiet">{}</span>', _("(no text)") if row.is_completed else _("(no text yet)"))


def found_terms(row: Any, field: str) -> Sequence[str]:
    """Return what a search found in a field that a row of its list shows: see traces_app.admin.text_search."""
    terms: Mapping[str, Sequence[str]] = getattr(row, "found_terms", {})
    return terms.get(field, ())


def url_of_user(name: str) -> str:
    """Return the address of the page of an end user."""
    return reverse("admin:messages_app_session_user", query={"end_user": name})


def context_in_session(
    model_admin: admin.ModelAdmin[Any], request: HttpRequest, session: Session, title: str
) -> dict[str, Any]:
    """Return the context of a page about something in a session, whose tab has the title and the session."""
    name = read_session_name(session)
    return {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "tab_title": f"{title} · {name}",
        "opts": model_admin.opts,
        "session": session,
        "session_name": name,
    }


def badge(kind: str, text: str) -> SafeString:
    """Return a coloured label; the colours are in tracesite/admin.css."""
    return format_html('<span class="badge badge-{}">{}</span>', kind, visible(text))


def counts_in_words(counts: Iterable[tuple[int, str]]) -> str:
    """Return how many there are of several things, each with its text for `%(number)s`, but of those that are none."""
    return " · ".join(text % {"number": intcomma(number)} for number, text in counts if number)


def outcome_label(outcome: Outcome) -> SafeString:
    """Return how a run ended, in one word and colour; a title says what it means."""
    return format_html(
        '<strong class="outcome outcome-{}" title="{}">{}</strong>', outcome, outcome.meaning, outcome.label
    )


def call_label(call: ToolCall) -> SafeString:
    """Return the status of a call, in the colour of an outcome."""
    kind = _OUTCOMES.get(call.status, Outcome.DONE)
    return format_html('<strong class="outcome outcome-{}">{}</strong>', kind, capfirst(call.get_status_display()))


def second_line(kind: str, text: str) -> SafeString:
    """Return the line below the name of a row, of a kind of text: "quiet" or "bad"."""
    return format_html(' <span class="second-line {}">{}</span>', kind, text)


def outcome_first(columns: Sequence[Any], name: str) -> list[Any]:
    """Return the columns of a list with that of the outcome before the one that names the row."""
    first = [one for one in columns if one in ("action_checkbox", name)]
    return [*first, *(one for one in columns if one not in first)]
