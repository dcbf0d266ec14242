"""The panel beside a list of runs: what a run was asked, how it ended and why, without leaving the list (peek.js)."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.markdown import Prose
from traces_app.queries.questions import near_good_run
from traces_app.queries.runs.deciding import stored_decision
from traces_app.queries.runs.outcome import Outcome

from .listed_runs import read_listed
from .run_outline import sees
from .run_page import read_run, tokens_of, words_of_tokens


def send_peek(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Send a fragment of HTML with the run of a message. Raise Http404."""
    db = database(request)
    listed = read_listed(db, [message_id]).get(message_id) if sees(model_admin, request, message_id) else None
    if listed is None:
        raise Http404
    run = read_run(db, message_id, decided_by=stored_decision(listed.run)) if listed.run.failure_count else None
    context = {
        "opts": model_admin.opts,
        "listed": listed,
        "message": listed.run,
        "is_bad": listed.outcome == Outcome.FAILED,
        "failures": run.failures if run else [],
        "more_failures": run.more_failures if run else 0,
        "deciding": run.deciding if run else None,
        "good_run": near_good_run(db, listed.run) if listed.outcome == Outcome.FAILED else None,
        "tokens": words_of_tokens(tokens_of(db, listed.run)),
        "prose": Prose(),
    }
    return TemplateResponse(request, "admin/traces_app/peek.html", context)
