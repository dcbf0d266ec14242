"""Makes a project."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.utils.text import slugify

from access_app.arguments import add_retention_arguments, set_retention_fields
from access_app.audit.record import AuditedCommand
from access_app.errors import Conflict
from access_app.models import AuditAction, Project
from access_app.program import program
from access_app.projects import add_project


class Command(AuditedCommand):
    action = AuditAction.CREATE
    object_type = "project"
    help = "Create a project. Sessions and API keys belong to a project."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", help="letters, digits, hyphens and underscores, at most 64")
        parser.add_argument("--name", default="", help="name to display (default: the slug)")
        parser.add_argument("--json", action="store_true", help="print JSON")
        add_retention_arguments(parser, "--retention")

    def handle(self, *, slug: str, name: str, **options: Any) -> None:
        project = Project(slug=slug, name=name)
        set_retention_fields(project, options)
        try:
            project.full_clean()
        except ValidationError as error:
            raise CommandError(_problem(slug, error), returncode=2) from error
        try:
            add_project(project)
        except Conflict as error:
            raise CommandError(f"The project was not created. {error}") from error
        if options["json"]:
            self.stdout.write(json.dumps({"id": project.pk, "slug": project.slug, "name": project.name}))
        else:
            self.stdout.write(
                f"Project {project.slug} created. Create an API key with: {program()} create_api_key --project {project.slug} --name NAME"
            )


def _problem(slug: str, error: ValidationError) -> str:
    codes = {each.code for each in error.error_dict.get("slug", ())}
    if "unique" in codes:
        return f"Project {slug!r} already exists."
    if "invalid" in codes:
        proposal = slugify(slug)[:64]
        return (
            f"{slug!r} is not a slug: use letters, digits, - and _"
            + (f", such as {proposal}" if proposal else "")
            + "."
        )
    return "; ".join(f"{field}: {' '.join(errors)}" for field, errors in error.message_dict.items())
