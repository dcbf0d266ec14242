"""manage.py import_transcripts PATH... --project SLUG: stores transcripts of agents from files and folders."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from access_app.models import Project
from traces_app.imports import SUFFIXES, Counts, FileReport, import_paths


class Command(BaseCommand):
    help = (
        "Imports transcripts into a project. The format is told by the content of a file; importing a file again "
        "changes nothing, and one that says something else under an id that is taken gets another id. The exit status is 1 "
        "when a file failed or there is no such project."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            nargs="+",
            type=Path,
            metavar="PATH",
            help=f"a file, or a folder to search for {', '.join(SUFFIXES)}",
        )
        parser.add_argument("--project", required=True, metavar="SLUG", help="the project to import into")
        parser.add_argument("--dry-run", action="store_true", help="read and count everything, store nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def handle(self, *, paths: list[Path], project: str, dry_run: bool, json: bool, **options: Any) -> None:
        found = Project.objects.filter(slug=project).first()
        if found is None:
            raise CommandError(f"There is no project {project!r}. Create it with: manage.py create_project {project}")
        reports = []
        for report in import_paths(paths, None if dry_run else found.pk):
            reports.append(report)
            if not json:
                self._print_file(report)
        totals = Counts()
        for report in reports:
            totals.include(report.counts)
        if json:
            answer = {"project": project, "dry_run": dry_run, "files": reports, "totals": totals}
            self.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode())
        else:
            self._print_totals(reports, totals, dry_run=dry_run)
        failed = sum(report.status == "failed" for report in reports)
        if failed:
            raise CommandError(f"{failed} of {_number(len(reports), 'file')} failed.")

    def _print_file(self, report: FileReport) -> None:
        if report.status == "read":
            self.stdout.write(f"{report.path}: {report.format}, {_said(report.counts)}")
        else:
            style = self.style.ERROR if report.status == "failed" else self.style.NOTICE
            self.stdout.write(style(f"{report.path}: {report.status}: {report.reason}"))
        if report.stored:
            self.stdout.write(
                "  messages: " + ", ".join(f"{count} {state}" for state, count in sorted(report.stored.items()))
            )
        for own, name in report.renamed:
            self.stdout.write(f"  session {own!r} holds another conversation: stored as {name!r}")
        for where, why in report.left_out:
            self.stdout.write(f"  left out: {where}: {why}")
        if report.left_out_count > len(report.left_out):
            self.stdout.write(f"  left out: {report.left_out_count - len(report.left_out)} more")

    def _print_totals(self, reports: list[FileReport], totals: Counts, *, dry_run: bool) -> None:
        files = {status: sum(report.status == status for report in reports) for status in ("read", "skipped", "failed")}
        self.stdout.write("\nFiles: " + ", ".join(f"{count} {status}" for status, count in files.items()))
        self.stdout.write(f"Total: {_said(totals)}")
        for name, count in totals.tool_calls.most_common():
            errors = totals.errors[name]
            self.stdout.write(
                f"  {name or '(no name)'}: {_number(count, 'call')}" + (f", {errors} failed" if errors else "")
            )
        if dry_run:
            self.stdout.write("Dry run: nothing was stored.")


def _said(counts: Counts) -> str:
    roles = ", ".join(f"{count} {role}" for role, count in sorted(counts.messages.items()))
    oddities = "".join(
        f", {count} {what}"
        for count, what in (
            (counts.errors.total(), "failed"),
            (counts.calls_without_result, "without result"),
        )
        if count
    )
    if counts.orphan_results:
        oddities += f", {_number(counts.orphan_results, 'result')} without call"
    if counts.broken_arguments:
        oddities += f", {_number(counts.broken_arguments, 'call')} with arguments that are no JSON"
    return (
        f"{_number(counts.sessions, 'session')}; messages: {roles or 'none'}; "
        f"{_number(counts.tool_calls.total(), 'tool call')}, {_number(counts.tool_results, 'result')}{oddities}"
    )


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
