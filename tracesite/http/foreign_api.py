"""The API of another product as Tracesite serves it, and which one a path belongs to. They are in `tracesite/foreign_apis`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.urls import URLPattern, URLResolver
from django.utils.module_loading import import_string

from access_app.conf import conf
from access_app.mounting import below_base

OWN_BASE_PATH = "/api/"


class ErrorBody(Protocol):
    """Return the JSON of an error in the product's shape; `code`, `message` and `field` are those of our own error."""

    def __call__(
        self, path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
    ) -> dict[str, Any]: ...


LiveHandler = Callable[..., Awaitable[None]]
LiveRoute = Callable[[str], LiveHandler | None]
"""Return the handler of a path that the live part serves; None for other paths."""


@dataclass(frozen=True, kw_only=True)
class ForeignApi:
    """All that Tracesite knows about the API of another product."""

    base_paths: tuple[str, ...]
    """The beginnings of paths whose errors are its own, with a slash in front, as if Tracesite had the whole site."""
    routes: Sequence[URLPattern | URLResolver]
    error_body: ErrorBody
    live_route: str | None = None
    """Dotted name of its LiveRoute, imported by live processes only."""


@functools.cache
def foreign_apis() -> tuple[ForeignApi, ...]:
    """Return the APIs of the setting FOREIGN_APIS, in its order."""
    return tuple(import_string(name) for name in conf.FOREIGN_APIS)


def foreign_api_of(path: str) -> ForeignApi | None:
    """Return the first foreign API that has a base path of `path`; None for our own."""
    own = below_base(path)
    return next((api for api in foreign_apis() if own.startswith(api.base_paths)), None)


def is_api(path: str) -> bool:
    """Return whether `path` is answered with data for programs, by our own API or a foreign one."""
    return below_base(path).startswith(OWN_BASE_PATH) or foreign_api_of(path) is not None


def live_handler_of(path: str) -> LiveHandler | None:
    """Return the live handler that a foreign API has for `path`; None where there is none."""
    api = foreign_api_of(path)
    if api is None or api.live_route is None:
        return None
    route: LiveRoute = import_string(api.live_route)
    return route(below_base(path))
