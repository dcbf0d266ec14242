"""Delete tails of turns: messages of files that began in the middle of a turn, once the whole turn is stored.

The id of a turn is that of its first line. A file that begins later in it, or whose first lines are damaged, gives it
another id, so that the same replies and calls become two messages once a file with the whole turn is imported. Claude
Code's ids of replies and calls are globally unique. A message whose replies and calls are all in the message before it,
with no user message between them, is a tail of that one: it goes to the trash, whichever of the two came first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any
from uuid import UUID

from access_app.db import Database
from messages_app.models import Message
from messages_app.writes import delete_message
from traces_app.models import AgentStep, ToolCall
from tracesite_sdk.transcripts.outline import SHARE

_ASIDES = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isSynthetic", "queued_at")
"""Metadata keys of user messages that begin no turn."""
# User messages separate turns: in a session without tails there is no such pair.
_NEIGHBOURS = """
    SELECT session_id, earlier, id FROM (
        SELECT message.id, message.session_id, message.role,
               lag(message.id) OVER in_order AS earlier, lag(message.role) OVER in_order AS earlier_role
        FROM messages_app_session AS session JOIN messages_app_message AS message ON message.session_id = session.id
        WHERE session.project_id = %(project_id)s AND session.external_id = ANY(%(names)s)
        AND message.deleted_at IS NULL AND message.role IN ('user', 'assistant')
        AND NOT (message.role = 'user' AND message.metadata ?| %(asides)s)
        AND NOT starts_with(message.external_id, %(share)s)
        WINDOW in_order AS (PARTITION BY message.session_id ORDER BY message.created_at, message.id)
    ) AS neighbours
    WHERE role = 'assistant' AND earlier_role = 'assistant'
    ORDER BY session_id, id
"""


def trash_tails(db: Database, project_id: int, names: Collection[str]) -> None:
    """Delete the messages of these sessions that are tails of the message before them."""
    with db.cursor() as cursor:
        parameters: dict[str, Any] = {
            "project_id": project_id,
            "names": sorted(names),
            "asides": list(_ASIDES),
            "share": SHARE,
        }
        cursor.execute(_NEIGHBOURS, parameters)
        pairs = cursor.fetchall()
    held = _held(db, {message for _session, *pair in pairs for message in pair})
    whole: dict[UUID, UUID] = {}
    for session_id, earlier, message_id in pairs:
        # A deleted tail does not count: then the message before the tail is the previous one.
        before = whole.get(earlier, earlier)
        if held[message_id] and held[message_id] <= held[before]:
            whole[message_id] = before
            delete_message(db, message_id, by="import", session_id=session_id)


def _held(db: Database, messages: Collection[UUID]) -> dict[UUID, set[tuple[str, str]]]:
    """Return the ids of the replies and of the calls of each message."""
    held: dict[UUID, set[tuple[str, str]]] = defaultdict(set)
    if not messages:
        return held
    own = db.rows(Message.objects).filter(pk__in=messages).values_list("pk", "pk", "metadata__message_id")
    steps = (
        db.rows(AgentStep.objects)
        .filter(message_id__in=messages)
        .values_list("pk", "message_id", "metadata__message_id")
    )
    for _id, message_id, reply in [*own, *steps]:
        if isinstance(reply, str):
            held[message_id].add(("reply", reply))
    for message_id, call in (
        db.rows(ToolCall.objects).filter(message_id__in=messages).values_list("message_id", "call_id")
    ):
        held[message_id].add(("call", call))
    return held
