"""The panel beside a list of runs, sessions or calls: how a row ended and why, without leaving the list (peek.js)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.db import Database
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.markdown import Prose
from messages_app.models import Message
from messages_app.safe_text import ago, duration, message_duration, run_time
from traces_app.queries.questions import near_good_run
from traces_app.queries.runs.actors import read_about
from traces_app.queries.runs.deciding import stored_decision
from traces_app.queries.runs.listed import ListedRun, read_listed
from traces_app.queries.runs.outcome import OF_STATUS, Outcome
from traces_app.queries.session_names import session_name
from tracesite_sdk.records import ids

from .about_runs import words_about
from .labels import call_label, outcome_label
from .run_outline import read_detail, sees
from .run_page import read_run, tokens_of, words_of_tokens

RUNS_SHOWN = 5


def send_peek(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Send a fragment of HTML with the run of a message. Raise Http404."""
    db = database(request)
    listed = read_listed(db, [message_id]).get(message_id) if sees(model_admin, request, message_id) else None
    if listed is None:
        raise Http404
    context = {
        "label": outcome_label(listed.outcome),
        "began": ago(listed.run.created_at),
        "name": listed.question or _("(no question)"),
        "took": message_duration(listed.run),
        "priced": listed.run,
        "tokens": words_of_tokens(tokens_of(db, listed.run)),
        "facts": [listed.session_name, *words_about(read_about([listed.run])[listed.run.pk])],
        **_ending(db, listed),
    }
    return _panel(model_admin, request, listed.run, context)


def send_session_peek(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Send a fragment of HTML with a session: its newest runs, and how the last one ended. Raise Http404."""
    db = database(request)
    session = _row(model_admin, request, session_id)
    of_session = db.rows(Message.objects).filter(session_id=session_id, role=Message.Role.ASSISTANT)
    number, failed = of_session.count(), session.failure_count
    runs = read_listed(db, list(of_session.order_by("-pk").values_list("pk", flat=True)[:RUNS_SHOWN]))
    last = runs.get(session.last_run_id)
    context = {
        "label": outcome_label(last.outcome if last else OF_STATUS[session.status]),
        "began": ago(session.created_at),
        "name": session_name(session),
        "took": run_time(session, last.run if last else None),
        "priced": session,
        "tokens": words_of_tokens(tokens_of(db, session)),
        "facts": [
            ngettext("%(number)s run", "%(number)s runs", number) % {"number": f"{number:,}"} if number else "",
            ngettext("%(number)s failed call", "%(number)s failed calls", failed) % {"number": f"{failed:,}"}
            if failed
            else "",
            session.end_user,
        ],
        "export_url": reverse("tracesite:session-export", args=[session.pk]),
        "runs_title": _("Newest runs"),
        "runs": [runs[key] for key in sorted(runs, reverse=True)],
        **(_ending(db, last) if last else {}),
    }
    return _panel(model_admin, request, session, context)


def send_call_peek(model_admin: KeysetAdmin, request: HttpRequest, call_id: UUID) -> HttpResponse:
    """Send a fragment of HTML with a call: what it was given and what came of it. Raise Http404."""
    db = database(request)
    call = _row(model_admin, request, call_id)
    detail = read_detail(db, call.message_id, call_id)
    if detail is None:
        raise Http404
    runs = list(read_listed(db, [call.message_id]).values())
    context = {
        "label": call_label(call),
        "began": ago(call.started_at or ids.created_at_of(call_id)),
        "tool": detail.title,
        "name": detail.telling,
        "took": duration(call.duration_ms),
        "facts": [run.session_name for run in runs],
        "detail": detail,
        "runs_title": _("Run"),
        "runs": runs,
    }
    return _panel(model_admin, request, call, context)


def _row(model_admin: KeysetAdmin, request: HttpRequest, key: UUID) -> Any:
    """Return a row as its list has it, and note it for the audit log. Raise Http404."""
    row = model_admin.get_queryset(request).filter(pk=key).first()
    if row is None:
        raise Http404
    model_admin.note(request, row)
    return row


def _ending(db: Database, listed: ListedRun) -> dict[str, Any]:
    """Return why a run failed, its failed calls and its answer."""
    run = read_run(db, listed.run.pk, decided_by=stored_decision(listed.run)) if listed.run.failure_count else None
    is_bad = listed.outcome == Outcome.FAILED
    return {
        "listed": listed,
        "is_bad": is_bad,
        "failures": run.failures if run else [],
        "more_failures": run.more_failures if run else 0,
        "deciding": run.deciding if run else None,
        "good_run": near_good_run(db, listed.run) if is_bad else None,
        "prose": Prose(),
    }


def _panel(model_admin: KeysetAdmin, request: HttpRequest, row: Any, context: dict[str, Any]) -> HttpResponse:
    context |= {
        "opts": model_admin.opts,
        "object_id": row.pk,
        "row": row,
        "preserved_filters": model_admin.get_preserved_filters(request),
        "has_delete_permission": model_admin.has_delete_permission(request, row),
    }
    return TemplateResponse(request, "admin/traces_app/peek.html", context)
