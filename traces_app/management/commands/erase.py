"""manage.py erase: remove everything that belongs to a person, in the database and in archives, and keep a receipt."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from django.core.management.base import CommandError
from django.utils import timezone

from access_app.audit.record import AuditedCommand, record
from access_app.each_database import TracesCommand
from access_app.encryption.errors import NotWhileEncrypted
from access_app.models import AuditAction
from traces_app.maintenance.erasure import SHORTEST_MATCH, Found, Kind, Subject, count, erase, find, left_over
from traces_app.management.archive_arguments import archive_errors, require_extra
from traces_app.management.row_arguments import add_projects, confirm, message_bar, projects_named
from traces_app.models import Archive, Erasure

if TYPE_CHECKING:
    from traces_app.maintenance.archive.erasing import Erased


class Command(TracesCommand, AuditedCommand):
    names_projects = True
    help = (
        "Permanently remove everything that belongs to a person, in every table, the search index and the archives, and keep a "
        "receipt without content. Safe to interrupt and to run again. Not changed are the audit log, users and keys: the command "
        "names them if they match. Backups keep what they have until they are removed. "
        "Exit status: 0 done, 1 not done or only partly, 2 invalid arguments."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        subject = parser.add_mutually_exclusive_group(required=True)
        subject.add_argument(
            "--end-user", metavar="NAME", help="the sessions of this end user, and scores by this author"
        )
        subject.add_argument("--session", metavar="ID", help="this session: its id, or its external id")
        subject.add_argument(
            "--match",
            metavar="TEXT",
            help=(
                "messages that have this text anywhere in them or below them, and sessions, spans, scores, tools and saved "
                f"views that have it; upper and lower case are the same; at least {SHORTEST_MATCH} characters"
            ),
        )
        add_projects(parser)
        parser.add_argument(
            "--archive",
            action="append",
            default=[],
            metavar="DIR|URL",
            help="also this folder of an archive; those that this database wrote are known. May be repeated",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count what would be removed")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def handle(
        self,
        *,
        end_user: str | None,
        session: str | None,
        match: str | None,
        project: str | list[str],
        archive: str | list[str],
        dry_run: bool,
        yes: bool,
        **options: Any,
    ) -> None:
        given: dict[Kind, str | None] = {"end_user": end_user, "session": session, "match": match}
        ((kind, text),) = ((kind, text) for kind, text in given.items() if text is not None)
        if not text.strip() or "\x00" in text or (kind == "match" and len(text) < SHORTEST_MATCH):
            raise CommandError(
                f"--{kind.replace('_', '-')} {text!r}: use a text"
                + (f" of at least {SHORTEST_MATCH} characters." if kind == "match" else " that is not empty."),
                returncode=2,
            )
        subject = Subject(kind=kind, text=text, projects=projects_named(project))
        slugs = [found.slug for found in subject.projects]
        urls = sorted(
            {*Archive.objects.values_list("url", flat=True), *([archive] if isinstance(archive, str) else archive)}
        )
        if urls:
            require_extra()
        try:
            found = find(subject)
        except NotWhileEncrypted as error:
            raise CommandError(
                "--match cannot look into projects that are encrypted. Name others with --project, or use --end-user or --session."
            ) from error
        counts = count(found)
        archived = self._archives(urls, subject, found, [], dry_run=True)
        self._show("Would remove" if dry_run else "This removes", counts, archived)
        if dry_run:
            return
        if not found and not archived:
            # Of one that was killed only files may be left, which no manifest names.
            self._archives(urls, subject, found, [], dry_run=False)
            return
        if not yes:
            confirm(self)
        receipt = Erasure.objects.create(
            pk=uuid4(),
            kind=kind,
            subject=subject.hmac,
            projects=slugs,
            began_at=timezone.now(),
            found={**counts, **{f"archived {name}": rows for name, rows in _rows_of(archived).items()}},
            ids_sha256=found.ids_sha256,
        )
        with message_bar() as bar:
            receipt.removed = erase(found, progress=bar.update)
        erased: list[Erased] = []
        self._archives(urls, subject, found, erased, dry_run=False)
        receipt.archives = [asdict(one) for one in erased]
        receipt.ended_at = timezone.now()
        receipt.save()
        record(
            AuditAction.PURGE,
            object_type="erasure",
            object_id=receipt.pk,
            detail={"kind": kind, "projects": slugs, "rows": sum(receipt.removed.values()), "archives": len(erased)},
        )
        self.stdout.write(_printed(receipt))
        if left := left_over(subject):
            named = ", ".join(f"{table} ({rows:,})" for table, rows in left.items())
            raise CommandError(f"The text is still in rows that this command does not change: {named}.")

    def _archives(
        self, urls: list[str], subject: Subject, found: Found, erased: list[Erased], *, dry_run: bool
    ) -> list[Erased]:
        if not urls:
            return erased
        from traces_app.maintenance.archive.erasing import check_erased, erase_from  # the extra may be missing
        from traces_app.maintenance.archive.folder import open_folder

        with archive_errors():
            for url in urls:
                folder = open_folder(url)
                erase_from(folder, subject, found, dry_run=dry_run, report=erased)
                if not dry_run:
                    check_erased(folder, subject)
        return erased

    def _show(self, verb: str, counts: dict[str, int], archived: list[Erased]) -> None:
        self.stdout.write(f"{verb}:")
        if not counts and not archived:
            self.stdout.write("  nothing")
        for name, rows in counts.items():
            self.stdout.write(f"  {name:<12} {rows:,}")
        for one in archived:
            rows_in_words = ", ".join(f"{rows:,} {name}" for name, rows in one.rows.items())
            self.stdout.write(f"  {one.period} of {one.project} in {one.url}: {rows_in_words}")


def _rows_of(archived: list[Erased]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for one in archived:
        for name, number in one.rows.items():
            rows[name] = rows.get(name, 0) + number
    return rows


def _printed(receipt: Erasure) -> str:
    columns = {field.attname: getattr(receipt, field.attname) for field in receipt._meta.concrete_fields}
    return msgspec.json.format(msgspec.json.encode(columns)).decode()
