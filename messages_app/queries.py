"""Reading sessions: finding one by its name, and the resources of a page."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from msgspec import UNSET

from access_app.errors import Conflict, NotFound
from access_app.visibility import Reach, visible_to

from . import resources
from .columns import Column, Source, as_text, as_they_are, instant, json
from .models import Session

SESSION_FIELDS = frozenset(resources.Session.__struct_fields__)


def find_session(
    reach: Reach, name: str, *, among: QuerySet[Session] | None = None, field: str | None = None
) -> Session:
    """The session whose id, or else external id, is `name`, among those that are alive or as said.

    Raises NotFound, and Conflict where projects that are open to the same reader use the same external id; `field` is the
    parameter that they name.
    """
    rows = visible_to(Session.objects.all() if among is None else among, reach)
    session_id = as_uuid(name)
    session = None if session_id is None else rows.filter(pk=session_id).first()
    if session is not None:
        return session
    # PostgreSQL holds no U+0000, and refuses to compare with it.
    named = [] if "\x00" in name or not name else list(rows.filter(external_id=name)[:2])
    if len(named) > 1:
        raise Conflict(
            _("Several projects have a session of this external id: use the id of the session."),
            code="ambiguous_session",
            field=field,
        )
    if not named:
        raise NotFound(_("There is no session of this id."), code="session_not_found", field=field)
    return named[0]


def as_uuid(text: str) -> UUID | None:
    """The UUID that `text` is in some form, else None."""
    try:
        return UUID(text)
    except ValueError:
        return None


def sessions(ids: Collection[str], fields: frozenset[str] = SESSION_FIELDS) -> list[resources.Session]:
    """The sessions of `ids`, in this order, with the fields that are asked for; at most one query."""
    make = SESSIONS.maker(fields)
    found = {}
    for session_id, input_tokens, output_tokens, duration, *values in SESSIONS.read(ids, fields):
        used = _used(input_tokens, output_tokens, duration) if "resources" in fields else UNSET
        found[session_id] = make(values, resources=used)
    return [found[session_id] for session_id in ids if session_id in found]


def _used(input_tokens: int, output_tokens: int, duration_ms: int) -> resources.Resources:
    return resources.Resources(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        duration=duration_ms,
    )


SESSIONS = Source(
    resource=resources.Session,
    table="messages_app_session",
    key="id",
    partitioned=False,
    beside=("input_tokens", "output_tokens", "duration_ms"),
    columns={
        **as_text("id"),
        **as_they_are("external_id", "title", "description", "end_user", "status", "current_phase", "tags"),
        **as_they_are("message_count", "call_count", "failure_count"),
        "project": Column(sql="(SELECT slug FROM access_app_project WHERE access_app_project.id = project_id)"),
        "workflow": json("workflow"),
        "metadata": json("metadata"),
        "redactions": json("redactions"),
        "created_at": instant("created_at"),
        "updated_at": instant("updated_at"),
        "deleted_at": instant("deleted_at"),
    },
)
