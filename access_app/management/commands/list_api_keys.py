"""Lists API keys: what they may do, when they were used, and whether they still open anything."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django.core.management.base import CommandParser

from access_app.arguments import project_named
from access_app.command import TracesiteCommand
from access_app.models import ApiKey


class Command(TracesiteCommand):
    help = "List API keys, including revoked and expired ones. Tokens are not stored and cannot be listed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only keys of this project")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *, project: str | None, **options: Any) -> None:
        keys = ApiKey.objects.select_related("project").order_by("project__slug", "pk")
        if project is not None:
            keys = keys.filter(project=project_named(project))
        rows = [_row(key) for key in keys]
        if options["json"]:
            self.stdout.write(json.dumps(rows))
        elif not rows:
            self.stdout.write("No API keys.")
        else:
            self._write_table(rows)

    def _write_table(self, rows: list[dict[str, Any]]) -> None:
        columns = list(rows[0])
        cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
        widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
        for line in cells:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _row(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.pk,
        "project": key.project.slug,
        "begins": key.prefix,
        "name": key.name,
        "scopes": key.scopes,
        "masked": key.reads_masked,
        "networks": key.allowed_networks,
        "per_minute": key.requests_per_minute,
        "status": key.status(),
        "created_at": _iso(key.created_at),
        "last_used_at": _iso(key.last_used_at),
        "expires_at": _iso(key.expires_at),
        "revoked_at": _iso(key.revoked_at),
    }


def _iso(moment: dt.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return (",".join(value) or "-") if isinstance(value, list) else str(value)
