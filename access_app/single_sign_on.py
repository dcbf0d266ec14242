"""Logins that a proxy has checked: Django's REMOTE_USER, from a header that the settings name.

The proxy must set the headers of every request, because whoever can send them is believed. Settings that name them demand
TRACESITE_HTTPS, and `serve` drops names with underscores, which would count as the same header.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.backends import RemoteUserBackend
from django.contrib.auth.middleware import RemoteUserMiddleware
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from access_app.conf import conf


class ProxyUserMiddleware(RemoteUserMiddleware):
    """Log the user of the header in, and out when the header is gone."""

    @property
    def header(self) -> str:  # type: ignore[override]  # read from the settings, which tests change
        return meta_name(conf.REMOTE_USER_HEADER)


class ProxyUserBackend(RemoteUserBackend):
    """Make users that are not known yet, and keep their groups as the proxy says."""

    def authenticate(self, request: HttpRequest | None, remote_user: str | None) -> User | None:  # type: ignore[override]
        """Return the user of this name; None for one that is too long to be stored."""
        longest = User._meta.get_field("username").max_length or 0
        if remote_user is not None and len(remote_user) > longest:
            return None
        user: User | None = super().authenticate(request, remote_user)  # type: ignore[arg-type]
        return user

    def configure_user(  # type: ignore[override]  # the stubs know no model of users
        self, request: HttpRequest, user: User, created: bool = True
    ) -> User:
        """Let a new user log in to the admin, where roles decide what it sees; put it into its groups at each login."""
        if created:
            make_staff(user)
        if conf.REMOTE_GROUPS_HEADER:
            set_groups(user, request.META.get(meta_name(conf.REMOTE_GROUPS_HEADER), "").split(","))
        return user


def agrees(session: SessionBase, user: User | AnonymousUser, proxy_user: str) -> bool:
    """Return whether a login of before still holds, given whom the proxy names now ("": nobody): what ProxyUserMiddleware decides for
    pages, for streams."""
    if not conf.REMOTE_USER_HEADER:
        return True
    if proxy_user:
        return user.get_username() == proxy_user
    return session.get(BACKEND_SESSION_KEY) != f"{ProxyUserBackend.__module__}.{ProxyUserBackend.__qualname__}"


def make_staff(user: User) -> None:
    """Save a user who can log in, but not by a password."""
    user.is_staff = True
    user.set_unusable_password()
    user.save()


def set_groups(user: User, names: Iterable[str]) -> None:
    """Put a user into those of these groups that exist, because only those can have a role, and out of all others."""
    user.groups.set(Group.objects.filter(name__in=[name.strip() for name in names]))


def meta_name(header: str) -> str:
    """Return the key of a header in `request.META`."""
    return f"HTTP_{header.upper().replace('-', '_')}"
