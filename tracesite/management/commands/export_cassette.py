"""`tracesite export-cassette SESSION > failure.json`: what a session contains that can answer a test of its agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.db import Database
from access_app.traces_command import TracesCommand
from messages_app.models import Message
from traces_app.management.row_arguments import session_named
from traces_app.models import AgentStep, ToolCall
from tracesite_sdk.recorder.time_machine.recorded import Call, Recorded, Reply
from tracesite_sdk.records import ids


class Command(TracesCommand):
    needs_project = True
    help = "Write the results of tools and the replies of models of a session, for tracesite_sdk.recorder.time_machine.replaying."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("session", metavar="SESSION", help="id or external id of the session")
        parser.add_argument(
            "--project", metavar="SLUG", help="the project of the session, if several have its external id"
        )

    def handle(self, *_args: Any, session: str, project: str | None, **_options: Any) -> None:
        session_id = session_named(self.db, session, [project_named(project)] if project else [])
        messages = (
            self.db.rows(Message.objects).filter(session_id=session_id).order_by("pk")
            if session_id
            else self.db.rows(Message.objects).none()
        )
        rows = list(messages.values_list("pk", "role", "content"))
        if not rows:
            raise CommandError(f"The session {session!r} has no messages, or was deleted.", returncode=2)
        self.stdout.write(recorded_of(self.db, rows).encoded().decode(), ending="")


def recorded_of(db: Database, messages: list[tuple[Any, str, str]]) -> Recorded:
    """Read what happened below messages (id, role, content). The rows hold no secrets."""
    number = 0
    calls: list[Call] = []
    replies: list[Reply] = []
    for message_id, role, content in messages:
        if role != Message.Role.ASSISTANT:
            continue
        below = _calls_of_steps(db, message_id)
        # Not before the time of a snapshot that was taken in this run.
        first = len(replies)
        number = max(number + 1, int(ids.created_at_of(message_id).timestamp() * 1e9))
        for step in db.rows(AgentStep.objects).filter(message_id=message_id).order_by("iteration", "ordinal", "pk"):
            if step.thought or step.model or step.usage:
                number += 1
                replies.append(_reply(number, step, below))
            for call in below.get(step.pk, []):
                number += 1
                calls.append(_call(number, call))
        if len(replies) > first and not replies[-1].text and not replies[-1].calls:
            # The last reply is the answer.
            replies[-1] = replace(replies[-1], text=content or None)
    prompts = tuple(content for _id, role, content in messages if role == Message.Role.USER)
    return Recorded(calls=calls, replies=replies, prompts=prompts)


def _calls_of_steps(db: Database, message_id: Any) -> dict[Any, list[ToolCall]]:
    """Return the calls below a message, with their tools and results, by the id of their step."""
    below: dict[Any, list[ToolCall]] = {}
    calls = db.rows(ToolCall.objects).filter(message_id=message_id).select_related("tool", "result")
    for call in calls.order_by("position", "pk"):
        below.setdefault(call.step_id, []).append(call)
    return below


def _reply(number: int, step: AgentStep, below: dict[Any, list[ToolCall]]) -> Reply:
    """Return what the model of a step replied, and the calls of the run during which it was asked."""
    requested = below.get(step.pk, [])
    inside = [
        str(call.pk)
        for of_step in below.values()
        for call in of_step
        if step.timestamp and call.started_at and call.completed_at
        if call.started_at < step.timestamp < call.completed_at
    ]
    return Reply(
        number=number,
        model=step.model or None,
        text=step.thought or None,
        reasoning=step.reasoning or None,
        usage=step.usage,
        calls=tuple({"id": call.call_id, "name": call.tool.name, "args": call.args} for call in requested),
        inside=inside,
    )


def _call(number: int, call: ToolCall) -> Call:
    result = getattr(call, "result", None)
    value = None if result is None else result.data if result.data is not None else result.output
    error = result.error if result is not None and call.status == ToolCall.Status.ERROR else None
    return Call(
        id=str(call.pk),
        parent=str(call.parent_id) if call.parent_id else None,
        tool=call.tool.name,
        args=call.args,
        number=number,
        result=value,
        error=error,
    )
