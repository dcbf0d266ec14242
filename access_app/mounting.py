"""The base path of Tracesite in a project: `path("traces/", include("tracesite.urls"))` puts everything below /traces/."""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.urls import NoReverseMatch, ResolverMatch, get_urlconf, reverse

NAMESPACE = "tracesite"


def base_path() -> str:
    """Return the path below which the addresses of Tracesite are, with a slash at both ends; "/" for the whole site."""
    return _base_path(get_urlconf() or settings.ROOT_URLCONF)


@cache
def _base_path(urlconf: object) -> str:
    try:
        return reverse(f"{NAMESPACE}:api").removesuffix("api/v1/")
    except NoReverseMatch:
        return "/"  # Nothing is included; a system check says so.


def below_base(path: str) -> str:
    """Return a path as it would be if Tracesite had the whole site; "" for one that is not ours."""
    base = base_path()
    return path[len(base) - 1 :] if path.startswith(base) else ""


def view_of(match: ResolverMatch) -> str:
    """Return the name of a view without our namespace."""
    return match.view_name.removeprefix(f"{NAMESPACE}:")


def route_below_base(match: ResolverMatch) -> str:
    """Return the pattern of a URL as it would be if Tracesite had the whole site."""
    return match.route.removeprefix(base_path()[1:])
