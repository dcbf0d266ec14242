"""Who may look at which session, and at which answer: asked of Django, in threads of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils.translation import gettext as _

from access_app.errors import NotAuthenticated, NotFound, NotPermitted
from access_app.keys import find_key
from access_app.models import ApiKey, Scope
from access_app.visibility import EVERYTHING, NOTHING, Reach, visible_to
from messages_app import queries
from messages_app.models import Session
from messages_app.queries import FoundMessage
from traces_app import resources
from traces_app.queries import EVERYTHING as WHOLE
from traces_app.queries import Selection, messages

_ABOUT = Selection(fields=frozenset({"role", "request_id", "is_completed", "deleted_at"}))


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who was let in."""

    reach: Reach
    key_id: int | None = None
    login: str = ""
    """The cookie of a member of staff."""


def viewer_of_key(token: str) -> Viewer:
    """Raises NotAuthenticated, and NotPermitted without the scope to read."""
    close_old_connections()
    key = find_key(token)
    if key is None:
        raise NotAuthenticated(_("This API key is not known, has expired or was revoked."), code="invalid_api_key")
    if Scope.READ not in key.scopes:
        raise NotPermitted(
            _("This needs the scope “%(scope)s”; the key %(prefix)s… has: %(scopes)s.")
            % {"scope": Scope.READ, "prefix": key.prefix, "scopes": ", ".join(key.scopes)},
            code="missing_scope",
        )
    return Viewer(Reach(frozenset({key.project_id})), key_id=key.pk)


def viewer_of_login(cookie: str) -> Viewer:
    """Of a member of staff who is logged in. Raises NotAuthenticated."""
    close_old_connections()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
    user = get_user(request)
    if not (user.is_active and user.is_staff):
        raise NotAuthenticated(_("This needs an API key, or the login of a member of staff."))
    # Whoever may see sessions in the admin, which knows no projects.
    return Viewer(EVERYTHING if user.has_perm("messages_app.view_session") else NOTHING, login=cookie)


def find_session(viewer: Viewer, name: str) -> UUID:
    """By id or external id. Raises NotFound, the same for what is not there and what is somebody else's."""
    close_old_connections()
    # In every project there may be one of the same name: of all that are open, the newest.
    sessions = visible_to(Session.objects.order_by("-pk"), viewer.reach).values_list("pk", flat=True)
    key = queries.as_uuid(name)
    found = sessions.filter(pk=key).first() if key else None
    if found is None and name and "\x00" not in name:  # PostgreSQL takes none
        found = sessions.filter(external_id=name).first()
    if found is None:
        raise session_not_found(name)
    return found


def find_message(viewer: Viewer, session: str, message: str) -> FoundMessage:
    """A message of a session, which is named by its id or external id. Raises NotFound."""
    close_old_connections()
    return queries.find_message(viewer.reach, message, queries.find_session(viewer.reach, session))


def read_message(message_id: UUID, *, whole: bool) -> resources.Message | None:
    """A message that is there, with all below it, or a few of its fields; None where it was removed meanwhile."""
    close_old_connections()
    found = messages([str(message_id)], WHOLE if whole else _ABOUT)
    return found[0] if found and found[0].deleted_at is None else None


def session_not_found(name: str) -> NotFound:
    return NotFound(_("There is no session “%(name)s” here.") % {"name": name[:64]}, field="sessionId")


def no_longer_admitted(viewers: Iterable[Viewer]) -> set[Viewer]:
    """Those whose key or login has ended, or opens something else than it did."""
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
    return key is None or Scope.READ not in key.scopes or viewer.reach != Reach(frozenset({key.project_id}))


def _login_has_changed(viewer: Viewer) -> bool:
    try:
        return viewer_of_login(viewer.login) != viewer
    except NotAuthenticated:
        return True


def is_our_host(host: str) -> bool:
    domain = split_domain_port(host)[0]
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def is_our_origin(origin: str, host: str) -> bool:
    """Whether a page of ours asks. A browser sends the cookie along for pages of others, too."""
    return urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS
