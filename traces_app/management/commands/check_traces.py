"""manage.py check_traces: report problems of stored traces."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict
from typing import Any

import msgspec
from django.core.management.base import CommandError

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.models import AuditAction
from traces_app.maintenance.integrity import KINDS, NOTES, Problem, Tally, check
from traces_app.management.row_arguments import session_named


class Command(AuditedCommand):
    action = AuditAction.READ
    object_type = "session"
    help = (
        (
            "Report inconsistent traces: one line per problem, with ids and numbers but no content. Changes "
            "nothing and can run while agents write. Exit status: 0 no problems, 1 problems found, 2 invalid "
            "arguments. Kinds of problems: "
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
            "--json", action="store_true", help="print one JSON object per line: the problems, then a summary"
        )

    def handle(self, *, project: str | None, session: str | None, json: bool, **options: Any) -> None:
        found = project_named(project) if project is not None else None
        session_id = session_named(session, [found] if found else []) if session is not None else None
        if session is not None and session_id is None:
            raise CommandError(f"Session {session!r} was purged.", returncode=2)
        tally, kinds = Tally(), Counter[str]()
        for problem in check(project_id=found.pk if found else None, session_id=session_id, tally=tally):
            kinds[problem.kind] += 1
            self.stdout.write(_as_json(problem) if json else _in_words(problem))
        notes = Counter({kind: kinds.pop(kind) for kind in NOTES & kinds.keys()})
        summary = {
            **asdict(tally),
            "problems": kinds.total(),
            "kinds": dict(sorted(kinds.items())),
            "notes": dict(sorted(notes.items())),
        }
        if json:
            self.stdout.write(_as_json({"summary": summary}))
        else:
            self.stdout.write(
                f"Checked {_number(tally.sessions, 'session')} with {_number(tally.messages, 'message')}, "
                f"{_number(tally.steps, 'step')} and {_number(tally.calls, 'call')}: {_summary(kinds)}{_notes(notes)}"
            )
        if kinds:
            raise CommandError(f"{_number(kinds.total(), 'problem')} found.")


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
