"""Find where a session is archived of which the database does not have everything any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import NotFound
from access_app.models import Project
from access_app.readable import Parts, Readable
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import Session, session_key
from messages_app.queries import Among, FoundSession, find_session_in
from traces_app.models import Archive


@dataclass(frozen=True, kw_only=True)
class ArchivedPlace:
    """The folder in which a session is archived, and its periods there, the earliest first."""

    project: str
    url: str
    periods: Sequence[str]


def where_archived(db: Database, scope: ProjectScope, name: str) -> ArchivedPlace | None:
    """Return where the session with this id or external id is archived; the folder that was written last, if there are several."""
    projects = visible_to(Project.objects.all(), scope, "pk").values_list("pk", flat=True)
    keys = [session_key(project_id, name) for project_id in projects]
    archives = list(
        db.rows(Archive.objects)
        .filter(sessions__key__in=keys)
        .select_related("project")
        .distinct()
        .order_by("created_at")
        .only("project__slug", "period", "url", "created_at")
    )
    if not archives:
        return None
    newest = archives[-1]
    periods = sorted(each.period for each in archives if (each.url, each.project_id) == (newest.url, newest.project_id))
    return ArchivedPlace(project=newest.project.slug, url=newest.url, periods=periods)


def archived_parts(db: Database, session: Session) -> list[Archive]:
    """Return the archives with periods of a session that were dropped from the database, in their order. One query."""
    key = session_key(session.project_id, str(session.pk))
    return list(db.rows(Archive.objects).filter(sessions__key=key, dropped_at__isnull=False).order_by("period", "url"))


def find_session_here(
    db: Database, scope: ProjectScope, name: str, *, among: Among = "alive", field: str | None = None
) -> FoundSession:
    """Return the session whose id or external id is `name`, like `find_session`. Of one that is archived, the error says so."""
    return find_session_here_in(Parts({db: scope}), name, among=among, field=field)[0]


def find_session_here_in(
    readable: Readable, name: str, *, among: Among = "alive", field: str | None = None
) -> tuple[FoundSession, Readable]:
    """Return a session of projects in several databases, like `find_session_in`. Of one that is archived, the error says so."""
    try:
        return find_session_in(readable, name, among=among, field=field)
    except NotFound:
        places = readable.each(lambda db, scope: where_archived(db, scope, name))
        archived = next(filter(None, places), None)
        if archived is None:
            raise
    raise NotFound(
        # Not the folder, which is a path of the server or a bucket: only operators need it.
        _("The session was archived (%(periods)s). An operator can bring it back with the command restore_archive.")
        % {"periods": ", ".join(archived.periods)},
        code="session_archived",
        field=field,
    )
