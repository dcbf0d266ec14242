"""The page of a session: the path of its runs, a chapter for each question, and its conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.conf import conf
from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.models import Role
from access_app.program import program
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.markdown import Prose
from messages_app.models import Message, Session
from messages_app.queries import as_uuid, session_of_page
from messages_app.safe_text import duration, for_scripts, run_time, total_cost_in_words
from messages_app.sql.pagination import Cursor
from messages_app.waiting import status_of_open_message, waiting_words
from traces_app.queries.archived import archived_parts
from traces_app.queries.contexts import newest_contexts
from traces_app.queries.runs.outcome import OF_STATUS, Outcome, outcome_of_run, quiet_since
from traces_app.queries.runs.outline import read_runs
from traces_app.queries.schemas.contexts import ContextKind
from traces_app.queries.session_names import read_session_name
from traces_app.queries.waiting import waiting_calls
from traces_app.spans.stored import traces_of

from .conversation import (
    count_messages_in_trash,
    count_runs,
    message_numbered,
    place_in_conversation,
    read_bubble,
    read_conversation,
    read_session,
    run_with_failure,
    words_of_message,
)
from .run_outline import explorer_words
from .run_page import deciding_failure_of, tokens_of, words_of_tokens
from .scores import judgements_of, judgements_of_session
from .session_outline import FAILED, path_rows, read_session_outline, rows_of
from .session_search import search_session
from .snapshot_pages import has_snapshots_or_forks

CONTEXTS_LISTED = 50
EVENTS_SHOWN = 5_000
"""Events that the page keeps, the newest."""
FOLLOWED_FOR = timedelta(hours=1)
"""The page of a session that is over goes on following it for so long: a conversation may have another turn."""
CONTEXT_KINDS: Mapping[ContextKind, Any] = {
    "prompt": gettext_lazy("prompt"),
    "conversation": gettext_lazy("conversation"),
    "variables": gettext_lazy("variables"),
    "context": gettext_lazy("context"),
    "value": gettext_lazy("value"),
    "input": gettext_lazy("input"),
}
ENDED = [Session.Status.COMPLETED, Session.Status.ERROR, Session.Status.ABORTED]


def show_session(model_admin: KeysetAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Show a page of the conversation of a session, deleted or not."""
    db = database(request)
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    key = as_uuid(unquote(object_id))
    page = read_session(db, key) if key is not None else None
    if page is None or not model_admin.has_view_permission(request, page.session):
        return model_admin.missing(request)
    session = page.session
    try:
        cursor = Cursor.parse(request.GET["cursor"]) if "cursor" in request.GET else None
    except InvalidInput:
        text = _("Invalid page of the conversation. The first page is shown.")
        model_admin.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(request.path)
    if "number" in request.GET:
        return _go_to(model_admin, request, session, request.GET["number"])
    if "failure_after" in request.GET:
        return _go_to_failure(request, session, as_uuid(request.GET["failure_after"]), later=True)
    if "failure_before" in request.GET:
        return _go_to_failure(request, session, as_uuid(request.GET["failure_before"]), later=False)
    conversation = read_conversation(db, session, cursor=cursor, newest="newest" in request.GET)
    shown = [bubble.message for bubble in conversation.bubbles]
    judged = judgements_of(db, shown, request.user.get_username())
    for message in shown:
        message.judged = judged[message.pk]
    outline = read_session_outline(db, session, conversation)
    runs = count_runs(db, session, [message.pk for message in shown])
    ending = _ending(db, session)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": read_session_name(session),
        "opts": model_admin.opts,
        "session": session,
        "preserved_filters": model_admin.get_preserved_filters(request),
        "messages_in_trash": count_messages_in_trash(db, session),
        "description": page.description,
        "details": [(name, model_admin.field_name(name), text) for name, text in page.details],
        "plan": page.plan,
        "span": duration(page.span_ms),
        "cost_words": total_cost_in_words(session),
        "tokens": words_of_tokens(tokens_of(db, session)),
        "open_status": status_of_open_message(session),
        "conversation": conversation,
        "prose": Prose(raw="raw" in request.GET),
        "bubbles": conversation.bubbles,
        "explorer_words": explorer_words(),
        "hidden": for_scripts(),
        "first_rows": msgspec.to_builtins(outline),
        "path_rows": path_rows(outline),
        "row_count": rows_of(shown),
        "runs": runs,
        "failure_count": runs["failures"],
        "beyond": _failures_beyond(shown) if runs["failures_here"] < runs["failures"] else None,
        "page_query": f"?{request.GET.urlencode()}" if {"cursor", "newest"} & request.GET.keys() else "",
        **model_admin.given_trash.context_of(model_admin, request, session),
        **_of_runs(model_admin, request, session),
        **ending,
        "run_time": run_time(session, ending.get("last_run")),
        "run_time_begun": _run_time_begun(session, ending.get("last_run")),
    }
    return TemplateResponse(request, "admin/traces_app/session_page.html", context)


def _run_time_begun(session: Any, last_run: Message | None) -> datetime | None:
    """Return the instant from which the run time of a session counts on, as if its runs had followed each other; None if it does not."""
    if last_run is None or last_run.is_completed:
        return None
    earlier = session.duration_ms - (last_run.duration_ms or 0)
    return last_run.created_at - timedelta(milliseconds=earlier)


def show_live(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Redirect to the events of a session, on its page, which follows it."""
    if session_of_page(database(request), model_admin.scope(request), session_id) is None:
        return model_admin.missing(request)
    return HttpResponseRedirect(reverse("admin:messages_app_session_change", args=[session_id]) + "?tab=events")


def _of_runs(model_admin: KeysetAdmin, request: HttpRequest, session: Any) -> dict[str, Any]:
    """Return what the page shows of the runs of a session, beside its conversation."""
    db = database(request)
    is_deleted = session.deleted_at is not None
    found: dict[str, Any] = {}
    if "q" in request.GET and not is_deleted:
        found["search"] = search_session(db, session, request.GET["q"], request.GET.get("found", ""))
    is_active = not is_over(session) or session.active_at > timezone.now() - FOLLOWED_FOR
    found |= {
        # The page that followed a session, /live/, leads to its events.
        "has_live": not is_deleted
        and (session.last_event or not is_over(session) or request.GET.get("tab") == "events"),
        "ended": json.dumps(ENDED),
        "is_over": is_over(session),
        "heartbeat": conf.LIVE_HEARTBEAT_SECONDS,
        "most": EVENTS_SHOWN,
        # What was found stays as it is.
        "follows": not is_deleted and is_active and "search" not in found,
        "quiet_since": quiet_since(session),
        "has_snapshots": has_snapshots_or_forks(db, session),
        "failures_url": url_of_failures(session),
        "may_edit": model_admin.allows(request, Role.EDITOR, session),
        "session_judged": judgements_of_session(db, session.pk, request.user.get_username()),
        "archived_parts": archived_parts(db, session),
        "shows_folder": model_admin.allows(request, Role.OWNER, session),
        "program": program(),
        "has_only_spans": not session.message_count and bool(traces_of(db, session.pk)),
    }
    # Contexts arrive only with events. The API that they link to does not read deleted sessions.
    if session.last_event and not is_deleted:
        contexts = newest_contexts(db, session.pk, CONTEXTS_LISTED)
        found["contexts"] = [(context, CONTEXT_KINDS[context.kind]) for context in contexts]
    return found


def _ending(db: Database, session: Session) -> dict[str, Any]:
    """Return how the newest run of a session ended, with the reason; of a session without runs what its status says, and
    so if it ended without that of the run."""
    waits = waiting_words(session)
    run = read_bubble(db, session.last_run_id) if session.last_run_id is not None else None
    if run is None or (is_over(session) and not run.message.is_completed):
        return {"outcome": OF_STATUS[session.status], "waiting_words": waits}
    message = run.message
    deciding = deciding_failure_of(db, message) if message.is_completed else None
    outcome = outcome_of_run(message, session, has_failed=bool(run.error) or deciding is not None)
    return {
        "outcome": outcome,
        "waiting_words": waits if outcome == Outcome.WAITING else "",
        "waiting_calls": [] if message.is_completed else waiting_calls(db, [message.pk]).get(message.pk, []),
        "last_run": message,
        "deciding": deciding,
        "error": run.error,
        "said": words_of_message(run),
        "run_url": reverse("admin:messages_app_message_change", args=[message.pk]),
    }


def _go_to(model_admin: KeysetAdmin, request: HttpRequest, session: Session, number: str) -> HttpResponse:
    """Redirect to the page of the conversation that begins with its message `number`, counted from 1."""
    db = database(request)
    message = message_numbered(db, session, int(number)) if re.fullmatch("[0-9]{1,9}", number, re.ASCII) else None
    if message is None:
        text = _("There is no such message. Messages are numbered from 1 to %(count)d.")
        model_admin.message_user(request, text % {"count": session.message_count}, messages.WARNING)
        return HttpResponseRedirect(request.path)
    return HttpResponseRedirect(f"{request.path}{place_in_conversation(session, message)}")


def _failures_beyond(shown: Sequence[Message]) -> dict[str, str]:
    """Return the addresses of the failures before and after a page of a session."""
    if not shown:
        return {}
    return {"previous": f"?failure_before={shown[0].pk}", "next": f"?failure_after={shown[-1].pk}"}


def _go_to_failure(request: HttpRequest, session: Session, message: UUID | None, *, later: bool) -> HttpResponse:
    """Redirect to the next failure after a message of a session, or the previous one before it: to a failed call, or to a run that
    failed without one."""
    db = database(request)
    run = run_with_failure(db, session, message, later=later) if message is not None else None
    if run is None:
        return HttpResponseRedirect(request.path)
    rows = read_runs(db, [run])[run]
    failed = [key for key, status in zip(rows.ids, rows.statuses, strict=True) if status == FAILED]
    call = failed[0 if later else -1] if failed else None
    return HttpResponseRedirect(f"{request.path}{place_in_conversation(session, run, call)}")


def is_over(session: Session) -> bool:
    """Return whether a session has ended, however."""
    return session.status in ENDED


def url_of_failures(session: Session) -> str:
    """Return the URL of the list of a session's failed calls."""
    url = reverse("admin:traces_app_toolcall_changelist")
    return f"{url}?{urlencode({'session': str(session.pk), 'status': 'error'})}"
