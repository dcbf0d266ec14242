"""manage.py import_transcripts PATH... --project SLUG: import transcripts from files, folders and archives.

On a terminal a bar shows the progress in the current file, twice if the file is read twice.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from io import BufferedIOBase, BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, Never

import msgspec
from django.core.management.base import CommandError
from tqdm import tqdm

from access_app.audit.record import AuditedCommand
from access_app.models import AuditAction, Project
from access_app.program import program
from access_app.traces_command import TracesCommand
from traces_app.imports.importer import import_paths
from traces_app.imports.reports import Counts, FileReport, totals_of
from tracesite_sdk.formats.registry import FORMATS, format_named
from tracesite_sdk.transcripts.documents import Source

_NAME_SHOWN = 30
_SKIPPED_NAMED = 20
"""Skipped files that are listed, because a folder may hold thousands of sources or pictures; -v 2 lists all."""
_SESSIONS_NAMED = 3
"""Sessions of a file whose pages are named; --json names more."""
_BLOCK = 1024 * 1024
_WHY_REFUSED: dict[str, str] = {
    "session_deleted": "their session is in the trash; restore it and import again",
    "session_purged": "their session was purged",
    "message_deleted": "they are in the trash; restore them and import again",
    "message_purged": "they were purged",
    "message_completed": "they are completed and take no new steps",
}


class Command(TracesCommand, AuditedCommand):
    action = AuditAction.IMPORT
    object_type = "session"
    help = (
        "Import transcripts into a project. The format is detected from the content. Importing a file "
        "again changes nothing; a different conversation with an id that is taken gets another id. Exit "
        "status: 1 if a file failed, messages were refused (deleted or purged ones do not come back), no "
        "transcript was found, or the project does not exist."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            nargs="+",
            type=Path,
            metavar="PATH",
            help="a file, an archive (zip, tar; gzip, bzip2, xz, zstd), a folder, or - for standard input",
        )
        parser.add_argument(
            "--format",
            choices=["auto", *(format_.NAME for format_ in FORMATS)],
            default="auto",
            help="the format of the files (default: detected from their content)",
        )
        parser.add_argument("--project", required=True, metavar="SLUG", help="the project to import into")
        parser.add_argument("--dry-run", action="store_true", help="read and count everything, but store nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def handle(
        self, *, paths: list[Path], project: str, format: str, dry_run: bool, json: bool, verbosity: int, **options: Any
    ) -> None:
        row = Project.objects.filter(slug=project).first()
        if row is None:
            raise CommandError(
                f"There is no project {project!r}. Create it with: {program()} create_project {project}", returncode=2
            )
        if isinstance(sys.stdout, TextIOWrapper):
            # Characters that the encoding of the output lacks are written as escapes.
            sys.stdout.reconfigure(errors="backslashreplace")
        reports = []
        skipped = 0
        with _Progress() as progress:
            project_id = None if dry_run else row.pk
            for report in import_paths(self.db, paths, project_id, format_=format_named(format), watch=progress.watch):
                reports.append(report)
                skipped += report.status == "skipped"
                if not json and (report.status != "skipped" or skipped <= _SKIPPED_NAMED or verbosity > 1):
                    progress.clear()
                    self._print_file(report)
        totals = totals_of(reports)
        if json:
            answer = {"project": project, "dry_run": dry_run, "files": reports, "totals": totals}
            self.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode())
        else:
            if skipped > _SKIPPED_NAMED and verbosity <= 1:
                self.stdout.write(f"{_number(skipped - _SKIPPED_NAMED, 'more file')} skipped; use -v 2 to list them.")
            self._print_totals(reports, totals, dry_run=dry_run)
        if problems := _problems(paths, reports):
            raise CommandError(" ".join(problems))

    def _print_file(self, report: FileReport) -> None:
        if report.status == "read":
            self._write_line(f"{report.path}: {report.format}, {_summary(report.counts)}")
        else:
            style = self.style.ERROR if report.status == "failed" else self.style.NOTICE
            self._write_line(f"{report.path}: {report.status}: {report.reason}", style)
        if report.stored:
            self._write_line(f"  messages: {_by_state(report.stored)}")
        for session in report.sessions[:_SESSIONS_NAMED]:
            self._write_line(f"  page: {session.page}")
        if len(report.sessions) > _SESSIONS_NAMED:
            self._write_line(f"  and {_number(report.counts.sessions - _SESSIONS_NAMED, 'more session')}")
        for own, name in report.renamed:
            self._write_line(f"  session {own!r} is another conversation: stored as {name!r}")
        for where, why in report.left_out:
            self._write_line(f"  left out: {where}: {why}")
        if report.left_out_count > len(report.left_out):
            self._write_line(f"  left out: {report.left_out_count - len(report.left_out)} more")

    def _print_totals(self, reports: list[FileReport], totals: Counts, *, dry_run: bool) -> None:
        files = {status: sum(report.status == status for report in reports) for status in ("read", "skipped", "failed")}
        self.stdout.write("")
        self._write_line("Files: " + ", ".join(f"{count} {status}" for status, count in files.items()))
        if stored := sum((report.stored for report in reports), Counter[str]()):
            self._write_line(f"Messages: {_by_state(stored)}")
        self._write_line(f"Total: {_summary(totals)}")
        for name, count in totals.tool_calls.most_common():
            errors = totals.errors[name]
            self._write_line(
                f"  {name or '(no name)'}: {_number(count, 'call')}" + (f", {errors} failed" if errors else "")
            )
        for flag, count in totals.health.most_common():
            self._write_line(f"  {flag}: {_number(count, 'message')}")
        if dry_run:
            self.stdout.write("Dry run: nothing was stored.")

    def _write_line(self, line: str, style: Callable[[str], str] = str) -> None:
        """Write a line with its control and unprintable characters as escapes, because it contains names of files."""
        shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
        self.stdout.write(style(shown))


class _Progress:
    """A progress bar, if standard error is a terminal."""

    def __init__(self) -> None:
        self._bar: tqdm[Never] | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def watch(self, source: Source) -> Source:
        """Return a source that moves the bar while it is read."""
        if not sys.stderr.isatty():
            return source
        self._close()
        size = os.path.getsize(source.name) if os.path.exists(source.name) else None
        self._bar = bar = tqdm(
            desc=os.path.basename(source.name)[-_NAME_SHOWN:], total=size, unit="B", unit_scale=True, leave=False
        )

        def opened() -> BufferedIOBase:
            return BufferedReader(_Watched(source.open(), bar), _BLOCK)

        return Source(source.name, opened)

    def clear(self) -> None:
        """Hide the bar, so that a line can be written."""
        if self._bar is not None:
            self._bar.clear()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Watched(RawIOBase):
    """A stream that reports its position to the bar."""

    def __init__(self, stream: BufferedIOBase, bar: tqdm[Never]) -> None:
        self._stream = stream
        self._bar = bar

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._bar.update(self._stream.tell() - self._bar.n)
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def _summary(counts: Counts) -> str:
    roles = ", ".join(f"{count} {role}" for role, count in sorted(counts.messages.items()))
    oddities = "".join(
        f", {count} {problem}"
        for count, problem in (
            (counts.errors.total(), "failed"),
            (counts.calls_without_result, "without result"),
        )
        if count
    )
    if counts.orphan_results:
        oddities += f", {_number(counts.orphan_results, 'result')} without call"
    if counts.broken_arguments:
        oddities += f", {_number(counts.broken_arguments, 'call')} with invalid JSON arguments"
    return (
        f"{_number(counts.sessions, 'session')}; messages: {roles or 'none'}; "
        f"{_number(counts.tool_calls.total(), 'tool call')}, {_number(counts.tool_results, 'result')}{oddities}"
    )


def _by_state(stored: Counter[str]) -> str:
    return ", ".join(
        f"{count} refused: {_WHY_REFUSED[state]}" if state in _WHY_REFUSED else f"{count} {state}"
        for state, count in sorted(stored.items(), key=lambda item: (item[0] in _WHY_REFUSED, item[0]))
    )


def _problems(paths: list[Path], reports: list[FileReport]) -> list[str]:
    """Return a sentence for each reason for which the import has not stored everything."""
    problems = []
    if all(report.status == "skipped" for report in reports):
        problems.append(f"No transcripts found in {', '.join(map(str, paths))}.")
    if failed := sum(report.status == "failed" for report in reports):
        problems.append(f"{failed} of {_number(len(reports), 'file')} failed.")
    if refused := sum(report.stored[reason] for report in reports for reason in _WHY_REFUSED):
        problems.append(f"{_number(refused, 'message')} {'was' if refused == 1 else 'were'} refused.")
    return problems


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
