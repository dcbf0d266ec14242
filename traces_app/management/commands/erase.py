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
from access_app.encryption.errors import NotWhileEncrypted
from access_app.models import AuditAction, Project
from access_app.traces_command import TracesCommand
from traces_app.maintenance.erasure import SHORTEST_MATCH, Kind, Subject, SubjectRows, count, erase, find, left_over
from traces_app.management.archive_arguments import archive_errors, require_extra
from traces_app.management.row_arguments import add_projects, confirm, message_bar, projects_named, session_named
from traces_app.models import Archive, Erasure

if TYPE_CHECKING:
    from traces_app.maintenance.archive.erasing import Erased
    from traces_app.maintenance.archive.folder import Folder


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
        subject = _subject(given, projects_named(project))
        folders = self._folders([archive] if isinstance(archive, str) else archive)
        try:
            found = find(self.db, subject)
        except NotWhileEncrypted as error:
            raise CommandError(
                "--match cannot look into projects that are encrypted. Name others with --project, or use --end-user or --session."
            ) from error
        counts = count(self.db, found)
        archived = self._archives(folders, subject, found, dry_run=True)
        if not found and not archived:
            if not dry_run:
                # Of one that was killed only files may be left, which no manifest names.
                self._archives(folders, subject, found, dry_run=False)
            self._say_nothing_found(subject, folders)
            return
        self._show("Would remove" if dry_run else "This removes", counts, archived)
        if dry_run:
            return
        if not yes:
            confirm(self)
        receipt = self.db.rows(Erasure.objects).create(
            pk=uuid4(),
            kind=subject.kind,
            subject=subject.hmac,
            projects=[project.slug for project in subject.projects],
            began_at=timezone.now(),
            found={**counts, **{f"archived {name}": rows for name, rows in _rows_of(archived).items()}},
            ids_sha256=found.ids_sha256,
        )
        self._erase(receipt, subject, found, folders)
        self.stdout.write(_printed(receipt))
        if left := left_over(self.db, subject):
            named = ", ".join(f"{table} ({rows:,})" for table, rows in left.items())
            raise CommandError(f"The text is still in rows that this command does not change: {named}.")

    def _erase(self, receipt: Erasure, subject: Subject, found: SubjectRows, folders: list[Folder]) -> None:
        """Erase what was found in the database and the archives, and complete the receipt."""
        with message_bar() as bar:
            receipt.removed = erase(self.db, found, progress=bar.update)
        erased = self._archives(folders, subject, found, dry_run=False)
        receipt.archives = [asdict(one) for one in erased]
        receipt.ended_at = timezone.now()
        receipt.save(using=self.db.alias)
        rows = sum(receipt.removed.values())
        record(
            AuditAction.PURGE,
            self.actor,
            object_type="erasure",
            object_id=receipt.pk,
            detail={"kind": receipt.kind, "projects": receipt.projects, "rows": rows, "archives": len(erased)},
        )

    def _folders(self, given: list[str]) -> list[Folder]:
        """Return the folders of archives that are given, and those that the database knows.

        Raise CommandError if one that is given has no archive: its path may be mistyped, and the person in the one that was meant.
        """
        known = sorted(set(self.db.rows(Archive.objects).values_list("url", flat=True)))
        if not given and not known:
            return []
        require_extra()
        from traces_app.maintenance.archive.folder import nothing_archived, open_folder  # the extra may be missing

        folders: dict[str, Folder] = {}
        with archive_errors():
            for url in (*given, *known):
                folder = open_folder(url)
                if folder.url in folders:
                    continue
                folders[folder.url] = folder
                if folder.has_anything():
                    continue
                if url in given:
                    raise nothing_archived(folder)
                self.stderr.write(
                    f"Nothing is archived any more in {url}, where this database has archived. If it was moved, or its disk is "
                    "not mounted, run this again with --archive, or once it is mounted."
                )
        return list(folders.values())

    def _archives(self, folders: list[Folder], subject: Subject, found: SubjectRows, *, dry_run: bool) -> list[Erased]:
        """Erase from the archives, or find what would be erased; return the periods that it is in."""
        if not folders:
            return []
        from traces_app.maintenance.archive.erasing import check_erased, erase_from  # the extra may be missing

        erased: list[Erased] = []
        with archive_errors():
            for folder in folders:
                erased += erase_from(self.db, folder, subject, found, dry_run=dry_run)
                if not dry_run:
                    check_erased(folder, subject)
        return erased

    def _say_nothing_found(self, subject: Subject, folders: list[Folder]) -> None:
        """Say where nothing was found. Raise CommandError for a session that neither is nor was there."""
        if subject.kind == "session" and session_named(self.db, subject.text, subject.projects) is None:
            self.stdout.write(f"Session {subject.text!r} is already purged.")
            return
        what = (
            f"Nothing of end user {subject.text!r}" if subject.kind == "end_user" else f"Nothing with {subject.text!r}"
        )
        projects = ", ".join(project.slug for project in subject.projects) or "any project"
        places = ", ".join(["the database", *(folder.url for folder in folders)])
        self.stdout.write(f"{what} was found in {projects}. Searched: {places}.")

    def _show(self, verb: str, counts: dict[str, int], archived: list[Erased]) -> None:
        self.stdout.write(f"{verb}:")
        for name, rows in counts.items():
            self.stdout.write(f"  {name:<12} {rows:,}")
        for one in archived:
            rows_in_words = ", ".join(f"{name} {rows:,}" for name, rows in one.rows.items())
            self.stdout.write(f"  {one.period} of {one.project} in {one.url}: {rows_in_words}")


def _subject(given: dict[Kind, str | None], projects: list[Project]) -> Subject:
    """Return the only subject that is given. Raise CommandError for a text that is empty or too short."""
    ((kind, text),) = ((kind, text) for kind, text in given.items() if text is not None)
    if not text.strip() or "\x00" in text or (kind == "match" and len(text) < SHORTEST_MATCH):
        raise CommandError(
            f"--{kind.replace('_', '-')} {text!r}: use a text"
            + (f" of at least {SHORTEST_MATCH} characters." if kind == "match" else " that is not empty."),
            returncode=2,
        )
    return Subject(kind=kind, text=text, projects=projects)


def _rows_of(archived: list[Erased]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for one in archived:
        for name, number in one.rows.items():
            rows[name] = rows.get(name, 0) + number
    return rows


def _printed(receipt: Erasure) -> str:
    columns = {field.attname: getattr(receipt, field.attname) for field in receipt._meta.concrete_fields}
    return msgspec.json.format(msgspec.json.encode(columns)).decode()
