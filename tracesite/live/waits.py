"""Subscriptions to sessions that do not exist yet.

An agent's page is often opened as soon as the task id exists, before the first event. The subscription waits and begins when
a session of that name is committed in the project of its key. Other projects are never searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from access_app.errors import ApiError

from .admission import Viewer

if TYPE_CHECKING:
    from .clients import Client

MAX_PER_PROJECT = 1_000
"""Most waiting subscriptions of one project in one process; each is looked up every few seconds."""


@dataclass(frozen=True, eq=False)
class Wait:
    """A subscription that waits for its session."""

    client: Client
    viewer: Viewer
    project_id: int
    name: str
    after: int
    field: str
    """The field or parameter in which the client sent the name."""


class Waits:
    """All waiting subscriptions of this process, by project and name."""

    def __init__(self) -> None:
        self._by_project: dict[int, dict[str, set[Wait]]] = {}
        self._counts: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._by_project)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Iterate over each awaited (project, name) once."""
        return ((project, name) for project, names in self._by_project.items() for name in names)

    def add(self, wait: Wait) -> None:
        """Add a waiting subscription. Raises TooManyWaiting."""
        count = self._counts.get(wait.project_id, 0)
        if count >= MAX_PER_PROJECT:
            raise TooManyWaiting
        self._counts[wait.project_id] = count + 1
        self._by_project.setdefault(wait.project_id, {}).setdefault(wait.name, set()).add(wait)
        wait.client.waits[wait.name] = wait

    def remove(self, wait: Wait) -> None:
        del wait.client.waits[wait.name]
        names = self._by_project[wait.project_id]
        names[wait.name].remove(wait)
        self._counts[wait.project_id] -= 1
        if not names[wait.name]:
            del names[wait.name]
        if not names:
            del self._by_project[wait.project_id], self._counts[wait.project_id]

    def of(self, project_id: int, name: str) -> list[Wait]:
        return list(self._by_project.get(project_id, {}).get(name, ()))


class TooManyWaiting(ApiError):
    status = 429
    default_code = "too_many_waiting"
    default_message = _("Too many subscriptions of this project are waiting for sessions that do not exist yet.")
