"""The page of a message; that of an answer shows the run with its question."""

from __future__ import annotations

from typing import Any

import msgspec
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from access_app.models import Role
from access_app.request_database import database
from messages_app.admin.keyset import VALUE_CHARACTERS, KeysetAdmin
from messages_app.markdown import WORK, Prose
from messages_app.models import Message
from messages_app.queries import as_uuid
from messages_app.safe_text import duration, for_scripts, one_line
from messages_app.waiting import waiting_words
from traces_app.queries.contexts import step_with_input
from traces_app.queries.questions import near_good_run
from traces_app.queries.runs.deciding import stored_decision
from traces_app.queries.runs.outcome import outcome_of_run, quiet_since
from traces_app.queries.runs.outline import Outline
from traces_app.queries.runs.unrecorded import unrecorded
from traces_app.queries.seals import read_sealed_at
from traces_app.queries.session_names import read_session_name
from traces_app.queries.waiting import waiting_calls
from tracesite_sdk.spans.conversation import TRACE_ID

from .conversation import MessagePage, place_in_conversation, read_message, words_of_message
from .flag_labels import losses_of, problems_of
from .input_page import input_context
from .labels import title_of
from .run_outline import explorer_words, read_detail, read_first_rows, sees
from .run_page import (
    models_of,
    read_deciding_failure,
    read_interrupts,
    read_run,
    read_tool_time,
    tokens_of,
    words_of_tokens,
)
from .run_search import MATCHES_LISTED, search_runs
from .scores import judgements_of
from .snapshot_pages import has_snapshots_or_forks
from .span_page import own_span, spans_of_message

TAB_CHARACTERS = 50
HEADING_CHARACTERS = 120
LEAST_UNRECORDED_MS = 1_000
LEAST_UNRECORDED_PART = 5
"""The answer is often written after the last row, so that a short time is left out of most runs."""


def show_message(model_admin: KeysetAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Show a message, deleted or not, with the run if it is an answer."""
    db = database(request)
    if "failure" in request.GET and (url := _url_of_deciding_failure(model_admin, request, object_id)):
        return HttpResponseRedirect(url)
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    key = as_uuid(unquote(object_id))
    page = read_message(db, key) if key is not None else None
    if page is None or not model_admin.has_view_permission(request, page.bubble.message):
        return model_admin.missing(request)
    message = page.bubble.message
    is_run = message.role == Message.Role.ASSISTANT
    waits = "" if message.is_completed else waiting_words(message.session)
    of_run = _of_run(model_admin, request, message)
    has_failed = bool(page.bubble.error) or of_run["run"].deciding is not None
    selected = _selected(model_admin, request, message)
    name = read_session_name(message.session)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title_of(message),
        "tab_title": f"{_short_name(page)} · {name}",
        "heading": _heading(page),
        "opts": model_admin.opts,
        "page": page,
        "prose": Prose(raw="raw" in request.GET),
        # Of their own, because the answer comes after them.
        "thoughts": Prose(raw="raw" in request.GET, work=WORK / 2),
        "place_in_conversation": place_in_conversation(message.session, message.pk),
        "message": message,
        "session": message.session,
        "session_name": name,
        "good_run": near_good_run(db, message) if message.has_errors else None,
        "waiting_words": waits,
        "is_run": is_run,
        "outcome": outcome_of_run(message, message.session, has_failed=has_failed) if is_run else None,
        "said": words_of_message(page.bubble) if is_run else "",
        "details": [(name, model_admin.field_name(name), text) for name, text in page.details],
        **model_admin.given_trash.context_of(model_admin, request, message),
        **of_run,
        **selected,
        "has_panel": any(selected.values()),
    }
    return TemplateResponse(request, "admin/traces_app/message_page.html", context)


def _of_run(model_admin: KeysetAdmin, request: HttpRequest, message: Any) -> dict[str, Any]:
    """Return what the page shows of the run of a message. A call that the address names and the run lacks is a warning."""
    db = database(request)
    wanted, page = request.GET.get("call", ""), request.GET.get("page", "")
    run = read_run(
        db,
        message.pk,
        page=int(page) if page.isdecimal() and len(page) < 6 else 1,
        call=as_uuid(wanted),
        open_all=request.GET.get("open") == "all",
        decided_by=stored_decision(message),
    )
    # The answer, too, is a row of the path.
    if wanted and as_uuid(wanted) != message.pk and (as_uuid(wanted) is None or run.lacks_wanted):
        text = _("Call “%(value)s” is not in this run.")
        model_admin.message_user(request, text % {"value": one_line(wanted, VALUE_CHARACTERS)}, messages.WARNING)
    missing, redacted = losses_of(db, message)
    outline = read_first_rows(db, message, run)
    found: dict[str, Any] = {
        "run": run,
        "failure_count": run.place.total,
        "problems": problems_of(db, message),
        "missing": missing,
        "redacted": redacted,
        "open_all": request.GET.get("open") == "all",
        "judged": judgements_of(db, [message], request.user.get_username())[message.pk],
        "may_edit": model_admin.allows(request, Role.EDITOR, message),
        "explorer_words": explorer_words(),
        "first_rows": msgspec.to_builtins(outline),
        "unrecorded": _unrecorded_words(outline, message),
        "hidden": for_scripts(),
        "row_count": message.step_count + message.call_count,
        "follows": not (message.is_completed or message.deleted_at or message.session.deleted_at),
        "quiet_since": quiet_since(message.session),
        "has_snapshots": has_snapshots_or_forks(db, message.session),
        "has_spans": TRACE_ID in message.metadata,
        "sealed_at": read_sealed_at(db, message.pk) if message.is_completed else None,
    }
    if request.GET.get("q"):
        found["search"] = search_runs(db, [message.pk], request.GET["q"], named=MATCHES_LISTED)
    if not message.is_completed:
        found["waiting_calls"] = waiting_calls(db, [message.pk]).get(message.pk, [])
    if not message.is_completed and waiting_words(message.session):
        found["waits_for"] = read_interrupts(db, message.pk)
    if message.unknown_count:
        found["unpriced_models"] = models_of(db, message.pk, unpriced=True)
    # An answer without steps has its model among its metadata.
    own = message.metadata.get("model")
    found["models"] = [own] if isinstance(own, str) and own else []
    if message.step_count:
        found["models"] = models_of(db, message.pk) or found["models"]
        found["tool_ms"] = read_tool_time(db, message.pk)
    found["tokens"] = words_of_tokens(tokens_of(db, message))
    return found


def _unrecorded_words(outline: Outline, message: Message) -> str:
    """Return how much of the time of a run its rows leave out; "" if that is not worth a word, and for a run without a known end
    or with more than the first rows."""
    if not outline.is_whole or message.completed_at is None:
        return ""
    total, gaps = unrecorded(outline, message)
    left_out = sum(gap.ms for gap in gaps)
    if left_out < max(LEAST_UNRECORDED_MS, total / LEAST_UNRECORDED_PART):
        return ""
    return _("%(duration)s not recorded") % {"duration": duration(left_out)}


def _selected(model_admin: KeysetAdmin, request: HttpRequest, message: Any) -> dict[str, Any]:
    """Return what the address selects, for readers without scripts and until the script has it: a step or call, with what its tab
    reads, or the spans of the trace. The text has every step and call itself."""
    db = database(request)
    tab, key = request.GET.get("tab"), as_uuid(request.GET.get("call", ""))
    if request.GET.get("view") == "text":
        return {}
    if tab == "spans":
        return {"spans": spans_of_message(db, message)}
    found: dict[str, Any] = {}
    # The answer has no panel.
    if key is not None and key != message.pk:
        found["detail"] = detail = read_detail(db, message.pk, key)
        found["detail_values"] = msgspec.to_builtins(detail)
        if detail is not None and tab == "input" and detail.input_of is not None:
            step = step_with_input(db, model_admin.scope(request), message.pk, detail.input_of)
            found["asked"] = None if step is None else input_context(db, step)
        elif detail is not None and tab == "span":
            found["spans"] = own_span(db, message, key)
    return found


def _url_of_deciding_failure(model_admin: KeysetAdmin, request: HttpRequest, object_id: str) -> str | None:
    """Return the target of `?failure`, because lists know the number of failed calls but not their ids."""
    db = database(request)
    message = as_uuid(unquote(object_id))
    call = read_deciding_failure(db, message) if message is not None and sees(model_admin, request, message) else None
    return f"{request.path}?call={call}#call-{call}" if call is not None else None


def _heading(page: MessagePage) -> str:
    """Return the heading of the page: of a run the beginning of its question, if it has words."""
    question = page.question.message.shown_content if page.question else ""
    return one_line(question, HEADING_CHARACTERS) or title_of(page.bubble.message)


def _short_name(page: MessagePage) -> str:
    """Return the beginning of the question, otherwise of the message itself, which distinguishes the tabs of a browser."""
    message = page.bubble.message
    question = page.question.message.shown_content if page.question else ""
    return one_line(question, TAB_CHARACTERS) or one_line(message.shown_content, TAB_CHARACTERS) or str(message)
