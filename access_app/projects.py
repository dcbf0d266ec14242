"""Create and change projects, whose traces may be in a database of their own."""

from __future__ import annotations

from .db import primary
from .keys import forget_api_keys
from .models import Project
from .places import alias_of, copy_project, place


@primary.atomic()
def add_project(project: Project) -> None:
    """Store a new project, and prepare its place if the settings name a database for its traces. Raise Conflict."""
    project.save(force_insert=True)
    place(project)


def project_changed(project: Project) -> None:
    """Bring the changes of the row of a project to where its traces are, and to the next request of this process."""
    copy_project(project, alias_of(project.pk))
    primary.on_commit(forget_api_keys)
