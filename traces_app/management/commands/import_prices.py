"""manage.py import_prices: store prices of models, of which the cost of steps is computed."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from access_app.audit.record import AuditedCommand
from access_app.models import AuditAction
from traces_app.maintenance.prices import SHIPPED, BadPrices, import_prices, read_prices_file


class Command(AuditedCommand):
    action = AuditAction.CHANGE
    object_type = "modelprice"
    help = (
        "Store prices of models: the published ones that Tracesite ships, or those of a file. Prices with the same "
        "project, model and first day are replaced, unless they were read later (as_of). Nothing is stored if anything "
        "in the file is wrong. Stored costs do not change: see recompute_costs. Exit status: 0 done, 2 invalid file."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file",
            nargs="?",
            type=Path,
            default=SHIPPED,
            help=(
                "a JSON list of objects, or a CSV file (.csv) with a header: model, input, output, as_of and, if "
                "needed, cached_input, cache_write, reasoning, valid_from, valid_until, source, project (USD for a "
                "million tokens; days as 2026-01-31). Default: the shipped prices."
            ),
        )

    def handle(self, *, file: Path, **options: Any) -> None:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}", returncode=2) from error
        try:
            done = import_prices(read_prices_file(content, is_csv=file.suffix.lower() == ".csv"))
        except BadPrices as error:
            lines = "\n".join(f"{file}: {problem}" for problem in error.problems)
            raise CommandError(f"{lines}\nNothing was stored.", returncode=2) from error
        self.stdout.write(
            f"{done.created} prices created, {done.updated} updated, {done.unchanged} unchanged, {done.kept} kept "
            "because they were read later."
        )
