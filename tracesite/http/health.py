"""Liveness and readiness checks: is this process alive, and can it work?"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db import OperationalError
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from access_app.db.earlier_migrations import TOO_OLD, is_too_old
from access_app.db.replica import STARTING_SECONDS, replica_state
from access_app.db.states import database_states
from access_app.db.unapplied import unapplied_migrations
from access_app.errors import Unavailable
from access_app.program import program
from access_app.rest import extend_schema

from .api_root import OpenToAll


class HealthView(OpenToAll):
    """Liveness (`/healthz`): this process responds. The database is not checked, because a restart would not bring it back."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response({"status": "ok"})


class ReadyView(OpenToAll):
    """`/readyz`: the database answers and has the tables of this version; else 503. It also says whether the replica is used, and how many databases of projects are not ready."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        try:
            lacks_earlier = is_too_old()
            pending = len(unapplied_migrations())
        except OperationalError as error:
            raise Unavailable(_("The database does not respond."), code="database_unavailable") from error
        if lacks_earlier:
            raise Unavailable(TOO_OLD, code="database_too_old")
        if pending:
            raise Unavailable(
                _("%(count)d migrations are not applied. Run “%(program)s migrate”.")
                % {"count": pending, "program": program()},
                code="migrations_pending",
            )
        return Response({"status": "ok", **_replica(), **_project_databases()})


def _project_databases() -> dict[str, Any]:
    """Return how many databases of projects are ready, and why others are not; not which, because everybody may ask.

    The other projects work, and another process would not find more, so these do not make the service unready.
    """
    states = database_states()
    return {"project_databases": dict(Counter(state.reason or "ready" for state in states))} if states else {}


def _replica() -> dict[str, Any]:
    """Return what is known of the replica. Without it the service works, so it does not make it unready."""
    state = replica_state(wait_seconds=STARTING_SECONDS)
    if state is None:
        return {}
    return {"replica": {"used": not state.reason, "reason": state.reason or None, "lag_seconds": state.lag_seconds}}
