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
from access_app.visibility import ALL_PROJECTS, NO_PROJECTS, ProjectScope
from messages_app import queries
from messages_app.queries import FoundMessage
from traces_app.queries import schemas
from traces_app.queries.messages import EVERYTHING, Selection, messages

LONGEST_NAME = 512
"""Characters of an external id: a longer name can never come to exist."""
_ABOUT = Selection(fields=frozenset({"role", "request_id", "is_completed", "deleted_at"}))


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who was let in."""

    projects: ProjectScope
    key_id: int | None = None
    login: str = ""
    """The cookie of a member of staff."""

    @property
    def project_id(self) -> int | None:
        """The project of a key; None of a login."""
        return None if self.key_id is None else next(iter(self.projects.project_ids or ()), None)


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
    return Viewer(ProjectScope(frozenset({key.project_id})), key_id=key.pk)


def viewer_of_login(cookie: str) -> Viewer:
    """Of a member of staff who is logged in. Raises NotAuthenticated."""
    close_old_connections()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
    user = get_user(request)
    if not (user.is_active and user.is_staff):
        raise NotAuthenticated(_("This needs an API key, or the login of a member of staff."))
    # As in the admin and the API: permissions of Django's know no projects, so they open none.
    return Viewer(ALL_PROJECTS if user.is_superuser else NO_PROJECTS, login=cookie)


def find_session(viewer: Viewer, name: str) -> UUID | None:
    """The session whose id, or else external id, is `name`; None where a key may wait for it to be made.

    Raises NotFound, the same for what does not exist and what belongs to another project, and Conflict where several
    projects that are open to a login have a session of this name.
    """
    close_old_connections()
    try:
        return queries.find_session(viewer.projects, name, field="sessionId").pk
    except NotFound:
        if viewer.project_id is None or not 0 < len(name) <= LONGEST_NAME or "\x00" in name:
            raise session_not_found(name) from None
    try:
        queries.find_session(viewer.projects, name, among="deleted")
    except NotFound:
        return None
    raise session_not_found(name)  # events of a deleted session are refused: it does not come back with the next one


def find_message(viewer: Viewer, session: str, message: str) -> FoundMessage:
    """A message of a session, which is named by its id or external id. Raises NotFound."""
    close_old_connections()
    return queries.find_message(viewer.projects, message, queries.find_session(viewer.projects, session))


def read_message(message_id: UUID, *, whole: bool) -> schemas.Message | None:
    """A message that is there, with all below it, or a few of its fields; None where it was removed meanwhile."""
    close_old_connections()
    found = messages([str(message_id)], EVERYTHING if whole else _ABOUT)
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
    return key is None or Scope.READ not in key.scopes or viewer.projects != ProjectScope(frozenset({key.project_id}))


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
