"""Permission to follow sessions and answers, checked through Django in the threads of the live part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib import import_module
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils.translation import gettext as _

from access_app.audit.record import origin_of_user, record
from access_app.audit.trail import Origin
from access_app.db import primary
from access_app.errors import NotAuthenticated, NotFound, NotPermitted
from access_app.keys import admitted_key
from access_app.masked_reading import MaskedReader, masked, masked_key, masked_login
from access_app.models import ActorKind, ApiKey, AuditAction, Role, Scope
from access_app.request_database import database_of
from access_app.roles import access_of
from access_app.single_sign_on import agrees
from access_app.two_factor import must_set_up
from access_app.visibility import ProjectScope
from messages_app import queries
from messages_app.queries import FoundMessage, FoundSession
from traces_app.queries.messages import EVERYTHING, Selection, messages
from traces_app.queries.schemas.messages import Message

LONGEST_NAME = 512
"""Characters of an external id: a longer name can never come to exist."""
_ABOUT = Selection(fields=frozenset({"role", "request_id", "is_completed", "deleted_at"}))


@dataclass(frozen=True, slots=True)
class Viewer:
    """An admitted key or login."""

    projects: ProjectScope
    key_id: int | None = None
    login: str = ""
    """The session cookie of a member of staff; "" for a key."""
    proxy_user: str = ""
    """Whom the proxy named, where one logs people in."""
    masked: MaskedReader | None = None
    """The masked projects of the viewer; None if there are none."""
    origin: Origin | None = field(default=None, compare=False)
    """The viewer and its address, for the audit log."""

    @property
    def project_id(self) -> int | None:
        """The project of a key; None for a login."""
        return None if self.key_id is None else next(iter(self.projects.project_ids or ()), None)


def viewer_of_key(token: str, address: str) -> Viewer:
    """Return the viewer of a key.

    Raises NotAuthenticated, or NotPermitted without the scope `read` or at an address that may not use the key.
    """
    # Uncached, because a viewer is asked again only after a notification, which may have come before.
    key = reading_key(token, address, uncached=True)
    if not database_of(key.project_id).is_primary:
        raise NotPermitted(_("A project with a database of its own cannot be followed live."), code="not_live")
    origin = Origin(kind=ActorKind.KEY, name=str(key), id=str(key.pk), address=address)
    return Viewer(ProjectScope(frozenset({key.project_id})), key_id=key.pk, masked=masked_key(key), origin=origin)


def reading_key(token: str, address: str, *, uncached: bool = False) -> ApiKey:
    """Return the key of a token, which may read. Raises as viewer_of_key."""
    close_old_connections()
    key = admitted_key(token, address, uncached=uncached)
    if key is None:
        raise NotAuthenticated(_("Invalid API key: unknown, expired or revoked."), code="invalid_api_key")
    if Scope.READ not in key.scopes:
        raise NotPermitted(
            _("The scope “%(scope)s” is required. The key %(prefix)s… has: %(scopes)s.")
            % {"scope": Scope.READ, "prefix": key.prefix, "scopes": ", ".join(key.scopes)},
            code="missing_scope",
        )
    return key


def viewer_of_login(cookie: str, address: str = "", proxy_user: str = "") -> Viewer:
    """Return the viewer of a logged-in member of staff. Raises NotAuthenticated, also for a login that the proxy does not name."""
    close_old_connections()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
    user = get_user(request)
    is_named = agrees(request.session, user, proxy_user)
    if not (user.is_active and user.is_staff and is_named) or must_set_up(user, request.session):
        raise NotAuthenticated(_("An API key or a staff login is required."))
    origin = replace(origin_of_user(user), address=address)
    access = access_of(user)
    return Viewer(
        access.scope(Role.VIEWER), login=cookie, proxy_user=proxy_user, masked=masked_login(access), origin=origin
    )


def find_session(viewer: Viewer, name: str, field: str) -> FoundSession | None:
    """Return the session whose id, else external id, is `name`; None if a key may wait for it to be created.

    Raises NotFound, the same for a session that does not exist and for one of another project, and Conflict if several
    projects visible to a login have a session of this name.
    """
    close_old_connections()
    try:
        session = queries.find_session(primary, viewer.projects, name, field=field)
        _record(viewer, "session", session.pk, session.project_id)
        return session
    except NotFound:
        if viewer.project_id is None or not 0 < len(name) <= LONGEST_NAME or "\x00" in name:
            raise session_not_found(name, field) from None
    try:
        queries.find_session(primary, viewer.projects, name, among="deleted")
    except NotFound:
        # Not by its name, which comes from outside; when the session begins, it has an id.
        _record(viewer, "session", "", viewer.project_id)
        return None
    raise session_not_found(name, field)  # events of a deleted session are refused, so waiting would be in vain


def find_message(viewer: Viewer, session: str, message: str) -> FoundMessage:
    """Find a message of a session named by id or external id. Raises NotFound."""
    close_old_connections()
    found_message = queries.find_message(
        primary, viewer.projects, message, queries.find_session(primary, viewer.projects, session)
    )
    _record(viewer, "message", found_message.pk, found_message.project_id)
    return found_message


def _record(viewer: Viewer, kind: str, object_id: UUID | str, project_id: int | None) -> None:
    """Record that a viewer begins to follow something: once, however much is pushed."""
    record(
        AuditAction.READ,
        None,
        project_id=project_id,
        object_type=kind,
        object_id=object_id,
        detail={"route": "live"},
        origin=viewer.origin,
    )


def read_message(viewer: Viewer, message_id: UUID, *, whole: bool) -> Message | None:
    """Read a message with everything below it, or only a few fields; None if it was removed meanwhile."""
    close_old_connections()
    with masked(viewer.masked):
        records = messages(primary, [str(message_id)], EVERYTHING if whole else _ABOUT)
    return records[0] if records and records[0].deleted_at is None else None


def session_not_found(name: str, field: str) -> NotFound:
    return NotFound(
        _("Session “%(name)s” does not exist, or you have no access to it.") % {"name": name[:64]}, field=field
    )


def no_longer_admitted(viewers: Iterable[Viewer]) -> set[Viewer]:
    """Return the viewers whose key or login has ended, now gives access to other projects, or masks by other rules."""
    viewers = set(viewers)
    close_old_connections()
    wanted = [viewer.key_id for viewer in viewers if viewer.key_id is not None]
    keys = {key.pk: key for key in ApiKey.objects.active().filter(pk__in=wanted)} if wanted else {}
    return {
        viewer
        for viewer in viewers
        if (viewer.login and _login_has_changed(viewer))
        or (viewer.key_id is not None and _key_has_changed(viewer, keys.get(viewer.key_id)))
    }


def _key_has_changed(viewer: Viewer, key: ApiKey | None) -> bool:
    return (
        key is None
        or Scope.READ not in key.scopes
        or viewer.projects != ProjectScope(frozenset({key.project_id}))
        or viewer.masked != masked_key(key)
    )


def _login_has_changed(viewer: Viewer) -> bool:
    try:
        return viewer_of_login(viewer.login, proxy_user=viewer.proxy_user) != viewer
    except NotAuthenticated:
        return True


def is_our_host(host: str) -> bool:
    domain = split_domain_port(host)[0]
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def is_our_origin(origin: str, host: str) -> bool:
    """Return whether a request comes from a page of this site; browsers send the cookie with foreign pages, too."""
    return urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS
