"""Lists who has which role in which project."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import project_named
from access_app.command import TracesiteCommand
from access_app.models import Membership
from access_app.people import with_people


class Command(TracesiteCommand):
    help = "List the roles of users and groups in projects. Superusers own every project and are not listed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only this project")
        parser.add_argument("--json", action="store_true", help="print JSON, one role a line")

    def handle(self, *, project: str | None, **options: Any) -> None:
        memberships = with_people(Membership.objects.select_related("project"), "user", "group").order_by(
            "project__slug", "id"
        )
        if project is not None:
            memberships = memberships.filter(project=project_named(project))
        for each in memberships:
            row = {
                "project": each.project.slug,
                "user": each.user and each.user.get_username(),
                "group": each.group and each.group.name,
                "role": each.role,
            }
            holder = row["user"] or f"group {row['group']}"
            self.stdout.write(json.dumps(row) if options["json"] else f"{row['project']}  {holder}  {row['role']}")
