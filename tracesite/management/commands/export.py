"""manage.py export: write a session, or the chain of one message as text, to standard output."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.record import AuditedCommand
from access_app.errors import ApiError
from access_app.models import AuditAction
from access_app.traces_command import TracesCommand
from access_app.visibility import ProjectScope
from messages_app.queries import find_message
from traces_app.queries.archived import find_session_here, where_archived
from traces_app.queries.messages import messages
from traces_app.views.session_exports import EXPORTS


class Command(TracesCommand, AuditedCommand):
    needs_project = True
    action = AuditAction.EXPORT
    object_type = "session"
    help = "Write a session with all its messages, oldest first, to standard output. Exit status: 0 done, 2 invalid arguments."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("session", metavar="SESSION", help="id or external id of the session")
        parser.add_argument("--project", metavar="SLUG", help="its project, if several have this external id")
        parser.add_argument(
            "--format", choices=EXPORTS, default="tracesite", help="default: tracesite, which can be imported"
        )
        parser.add_argument(
            "--message",
            metavar="ID",
            help="with --format text: only this message, with its chain; its id, not its external id",
        )

    def handle(self, *, session: str, project: str | None, format: str, message: str | None, **options: Any) -> None:
        chosen = EXPORTS[format]
        if message is not None and chosen.of_messages is None:
            raise CommandError("A single message is exported with --format text.", returncode=2)
        scope = ProjectScope(frozenset([project_named(project).pk]) if project is not None else None)
        try:
            in_scope = find_session_here(self.db, scope, session)
            pieces = chosen.pieces(self.db, in_scope)
            if message is not None and chosen.of_messages is not None:
                pieces = chosen.of_messages(
                    messages(self.db, [str(find_message(self.db, scope, message, in_scope).pk)])
                )
        except ApiError as error:
            where = f"in project {project!r}" if project is not None else "in any project"
            said = {
                "session_not_found": f"There is no session {session!r} {where}.",
                "message_not_found": f"There is no message with the id {message!r} in session {session!r}.",
            }
            archived = where_archived(self.db, scope, session) if error.code == "session_archived" else None
            folder = f" Its folder is {archived.url}." if archived is not None else ""
            raise CommandError(f"{said.get(error.code, str(error))}{folder}", returncode=2) from error
        for piece in pieces:
            self.stdout.write(piece.decode(), ending="")
