"""APIs of other products that Tracesite serves beside its own, so that their clients work unchanged.

Each is one ForeignApi, named in the setting FOREIGN_APIS. Nothing else in Tracesite names the product.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
    base_paths: tuple[str, ...]
    """The beginnings of its routes, with a slash in front, as if Tracesite had the whole site."""
    urls: str
    """The module that holds its URLs."""
    error_body: ErrorBody
    live_route: str | None = None
    """Dotted name of its LiveRoute, imported by live processes only."""


@functools.cache
def foreign_apis() -> tuple[ForeignApi, ...]:
    return tuple(import_string(name) for name in conf.FOREIGN_APIS)


def foreign_api_of(path: str) -> ForeignApi | None:
    """Return the foreign API that serves `path`; None for our own."""
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
