"""The live page of a session: it receives the session's events from /live/."""

from __future__ import annotations

import json
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from access_app.conf import conf
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Session
from messages_app.queries import session_of_page
from messages_app.safe_text import for_scripts

from .labels import session_name
from .session_page import ENDED, is_over

LIVE_EVENTS = 5_000
"""Events that the page keeps."""


def show_live(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Show a session live."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    if session is None:
        return model_admin.missing(request)
    statuses = {status.value: str(status.label) for status in Session.Status}
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Live: %(session)s") % {"session": session_name(session)},
        "opts": model_admin.opts,
        "session": session,
        "session_name": session_name(session),
        "statuses": json.dumps(statuses),
        "ended": json.dumps(ENDED),
        "is_over": is_over(session),
        "hidden": for_scripts(),
        "heartbeat": conf.LIVE_HEARTBEAT_SECONDS,
        "most": LIVE_EVENTS,
    }
    return TemplateResponse(request, "admin/traces_app/live_page.html", context)
