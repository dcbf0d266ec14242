"""Commands about traces, where some projects have databases of their own (docs/scaling.md)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandError

from access_app.arguments import project_named
from access_app.audit.trail import Actor
from access_app.command import TracesiteCommand
from access_app.db import PRIMARY, Database, all_aliases, project_aliases
from access_app.models import Project
from access_app.places import by_database


class TracesCommand(TracesiteCommand):
    """Command that runs in the database of the projects that it is given; without any, in each database with traces in turn.

    In a site with one database it is a command as others.
    """

    needs_project: ClassVar[bool] = False
    """Whether it has to be told the project if there are several databases, because what it names is in one of them."""
    names_projects: ClassVar[bool] = False
    """Whether it is given the projects of each database, where it takes several and is given none."""

    actor: Actor | None = None
    """The actor, if the command is in the audit log: see AuditedCommand."""
    _alias = PRIMARY

    @property
    def db(self) -> Database:
        """The database in which it runs at the moment."""
        return Database(self._alias, actor=self.actor)

    def execute(self, *args: Any, **options: Any) -> str | None:
        if not project_aliases():
            return super().execute(*args, **options)
        failed: CommandError | None = None
        for alias, own in self._runs(options).items():
            if own is None or "project" not in options or isinstance(options["project"], str):
                given = options
            else:
                given = {**options, "project": own}
            # Beside JSON, which is read by programs.
            (self.stderr if options.get("json") else options.get("stdout") or self.stdout).write(f"Database {alias}:\n")
            self._alias = alias
            try:
                super().execute(*args, **given)
            except CommandError as error:
                # The others are independent of it.
                self.stderr.write(str(error))
                failed = failed or error
        if failed is not None:
            raise failed
        return None

    def _runs(self, options: dict[str, Any]) -> dict[str, list[str] | None]:
        """Return the aliases, each with its projects if they are given."""
        given = options.get("project")
        slugs = [given] if isinstance(given, str) else list(given or ())
        if not slugs and (self.needs_project or options.get("session")):
            raise CommandError("There are several databases: name the project with --project.", returncode=2)
        if not slugs and not self.names_projects:
            return dict.fromkeys(all_aliases())
        projects = [project_named(slug) for slug in slugs] or list(Project.objects.order_by("slug"))
        return {alias: [one.slug for one in own] for alias, own in by_database(projects).items()}
