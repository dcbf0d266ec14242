"""manage.py check_traces: report problems of stored traces, and mend those that can be."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any, TypedDict
from uuid import UUID

import msgspec
from django.core.management.base import CommandError

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand, record
from access_app.db import Database
from access_app.models import AuditAction
from access_app.traces_command import TracesCommand
from messages_app.models import Message
from messages_app.sql.partitions import PeriodInUse
from traces_app.maintenance import derived, integrity
from traces_app.maintenance.derived import MENDERS, check_derived, hidden_periods, mend
from traces_app.maintenance.integrity import NOTES, Problem, Tally, check
from traces_app.management.row_arguments import message_bar, session_named

KINDS = {**integrity.KINDS, **derived.KINDS}
_MENDED_AT_ONCE = 200


class Command(TracesCommand, AuditedCommand):
    action = AuditAction.READ
    object_type = "session"
    help = (
        (
            "Report inconsistent traces: one line per problem, with ids and numbers but no content. Changes "
            "nothing without --repair, and can run while agents write. Exit status: 0 no problems, or all of them "
            "mended; 1 problems left; 2 invalid arguments. Kinds of problems: "
        )
        + "; ".join(f"{kind} ({meaning})" for kind, meaning in KINDS.items() if kind not in NOTES)
        + ". Reported as notes: "
        + "; ".join(f"{kind} ({meaning})" for kind, meaning in KINDS.items() if kind in NOTES)
        + "."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only this project")
        parser.add_argument(
            "--session",
            metavar="ID",
            help="only this session: its id, or its external id (with --project if several sessions have it)",
        )
        parser.add_argument(
            "--repair",
            action="store_true",
            help="mend what the rows themselves answer: " + ", ".join(MENDERS) + "; then check again what was mended",
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object per line: the problems, then a summary"
        )

    def handle(self, *, project: str | None, session: str | None, repair: bool, json: bool, **options: Any) -> None:
        row = project_named(project) if project is not None else None
        session_id = session_named(self.db, session, [row] if row else []) if session is not None else None
        if session is not None and session_id is None:
            raise CommandError(f"Session {session!r} was purged.", returncode=2)
        scope: _Scope = {"project_id": row.pk if row else None, "session_id": session_id}
        tally, kinds = Tally(), Counter[str]()
        mended = self._mend(scope) if repair else 0
        with message_bar(_messages(self.db, scope)) as bar:
            for problem in _check(self.db, scope, tally, bar.update):
                kinds[problem.kind] += 1
                self.stdout.write(_as_json(problem) if json else _in_words(problem))
        notes = Counter({kind: kinds.pop(kind) for kind in NOTES & kinds.keys()})
        summary = {
            **asdict(tally),
            "problems": kinds.total(),
            "kinds": dict(sorted(kinds.items())),
            "notes": dict(sorted(notes.items())),
            "mendable": sum(kinds[kind] for kind in MENDERS),
            "mended": mended,
        }
        if json:
            self.stdout.write(_as_json({"summary": summary}))
        else:
            self.stdout.write(
                f"Checked {_number(tally.sessions, 'session')} with {_number(tally.messages, 'message')}, "
                f"{_number(tally.steps, 'step')} and {_number(tally.calls, 'call')}: {_summary(kinds)}{_notes(notes)}"
            )
            if repair:
                self.stdout.write(f"Before that, {_number(mended, 'problem')} mended.")
            elif summary["mendable"]:
                self.stdout.write(f"--repair would mend {summary['mendable']:,} of them.")
        if kinds:
            raise CommandError(f"{_number(kinds.total(), 'problem')} found.")

    def _mend(self, scope: _Scope) -> int:
        """Mend what can be; return the number of problems."""
        mended = 0
        waiting: list[Problem] = []
        try:
            with message_bar(_messages(self.db, scope)) as bar:
                for problem in _check(self.db, scope, Tally(), bar.update):
                    if problem.kind in MENDERS:
                        waiting.append(problem)
                    if len(waiting) >= _MENDED_AT_ONCE or problem.kind == "month_hidden":
                        mended += mend(self.db, waiting)
                        waiting.clear()
                mended += mend(self.db, waiting)
        except PeriodInUse as error:
            raise CommandError(str(error)) from error
        if mended:
            record(AuditAction.CHANGE, self.actor, object_type="session", detail={"mended": mended})
        return mended


class _Scope(TypedDict):
    project_id: int | None
    session_id: UUID | None


def _check(db: Database, scope: _Scope, tally: Tally, progress: Callable[[int], object]) -> Iterator[Problem]:
    return chain(
        # Before anything is counted.
        hidden_periods(db) if not any(scope.values()) else (),
        check(db, **scope, tally=tally, progress=progress),
        check_derived(db, **scope),
    )


def _messages(db: Database, scope: _Scope) -> int | None:
    """Return the number of messages to be checked, for the progress bar; None if nobody sees it."""
    if not sys.stderr.isatty():
        return None
    given = {name: value for name, value in scope.items() if value is not None}
    return db.rows(Message.with_deleted).filter(**given).count()


def _in_words(problem: Problem) -> str:
    where = [f"{name} {id_}" for name, id_ in (("session", problem.session_id), ("message", problem.message_id)) if id_]
    return f"{problem.kind}: {' '.join([*where, ''])}({problem.detail})"


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _notes(kinds: Counter[str]) -> str:
    return " Notes: " + ", ".join(f"{kind}: {count:,}" for kind, count in sorted(kinds.items())) + "." if kinds else ""


def _summary(kinds: Counter[str]) -> str:
    if not kinds:
        return "no problems."
    return f"{_number(kinds.total(), 'problem')}. " + ", ".join(
        f"{kind}: {count:,}" for kind, count in sorted(kinds.items())
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
