"""Change sessions and messages that are stored: PATCH of the API, and tags from the admin."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext as _
from msgspec import UNSET

from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.encryption.keys import key_of
from access_app.errors import Conflict, NotFound, PreconditionFailed
from messages_app.change_log import log_changes
from messages_app.interruptions import is_interrupted, reopen
from messages_app.models import Message, Session
from messages_app.writes import Counts, add_tags, update_session
from tracesite_sdk import records
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.normalize.redacted import RedactedMessagePatch, RedactedSessionPatch, receipts_as_json
from tracesite_sdk.records import pg_text

from . import context_rows
from .batch import Context
from .merging import finish_message, has_new, without_known, write_merge
from .prices import current_prices
from .rows import rows_below
from .sessions import log_retitled
from .sql import add_to_sessions, stored_below, tool_names
from .tool_ids import find_or_make_tools

logger = logging.getLogger(__name__)


@in_transaction
def change_session(db: Database, session_id: UUID, change: RedactedSessionPatch) -> Session:
    """Change the fields in the patch. Raise NotFound if the session is unknown or deleted."""
    empty: dict[str, Any] = {"tags": [], "metadata": {}, "workflow": None}
    changes: dict[str, Any] = {}
    for name in change.patch.__struct_fields__:
        value = getattr(change.patch, name)
        if value is not UNSET:
            column = "said_status" if name == "status" else name
            changes[column] = empty.get(name, "") if value is None else pg_text.storable(value)
    if change.receipts:
        changes["redactions"] = receipts_as_json(change.receipts)
    if "title" in changes:
        log_retitled(db, session_id, changes["title"])
    if changes:
        changes["is_abandoned"] = None  # whoever writes is back
    return update_session(db, session_id, changes)


def tag_sessions(db: Database, session_ids: Collection[UUID], change: RedactedSessionPatch) -> list[UUID]:
    """Add the tags of the patch to sessions; return the changed ones. Deleted and unknown ones are skipped."""
    return add_tags(db, session_ids, [pg_text.text(tag) for tag in change.patch.tags or ()])


def change_message(
    db: Database,
    project_ids: Collection[int],
    message_id: UUID,
    change: RedactedMessagePatch,
    *,
    if_match: int | None = None,
) -> Message:
    """Change the fields in the patch and merge its steps; return the row with its new version.

    Raise NotFound (unknown, deleted, of another project), PreconditionFailed if `if_match` is not the version, Conflict if
    the version in the patch is not, or if a completed message is given new steps or calls.
    """
    patch = change.patch
    tool_ids: dict[str, int] = {}
    if names := tool_names(patch.agent_steps):
        owners = (
            db.rows(Message.objects)
            .filter(pk=message_id, project_id__in=project_ids)
            .values_list("project_id", flat=True)
        )
        for owner in owners:
            tool_ids = find_or_make_tools(db, owner, names)
    prices = current_prices()
    with db.atomic():
        locked = (
            db.rows(Message.objects).select_for_update(of=("self",)).filter(pk=message_id, project_id__in=project_ids)
        )
        message = locked.first()
        if message is None:
            raise NotFound(_("There is no message with this id."), code="message_not_found")
        if if_match is not None and if_match != message.version:
            raise PreconditionFailed(
                _("The message has changed. Its version is now %(version)s.") % {"version": message.version},
                field="If-Match",
            )
        if patch.version is not UNSET and patch.version != message.version:
            raise Conflict(
                _("The message has changed. Its version is now %(version)s.") % {"version": message.version},
                field="version",
                code="version_conflict",
            )
        context = Context(
            project_id=message.project_id,
            source="live",
            tool_ids=tool_ids,
            prices=prices,
            sessions=(),
            now=timezone.now(),
            data_key=key_of(message.project_id),
        )
        _patch(db, context, message, change)
    logger.info(
        "changed a message",
        extra={"session_id": str(message.session_id), "message_id": str(message_id), "version": message.version},
    )
    return message


def _patch(
    db: Database,
    context: Context,
    row: Message,
    change: RedactedMessagePatch,
) -> None:
    patch = change.patch
    if patch.agent_steps and row.role != "assistant":
        raise Conflict(_("Only assistant messages have steps."), field="agent_steps", code="not_an_assistant_message")
    stored = stored_below(db, [row.pk])[row.pk]
    before = Counts.of(row)
    was_completed = row.is_completed
    resumed: dict[str, Any] = {}
    if is_interrupted(row) and (patch.agent_steps or patch.is_completed is not UNSET):
        resumed = reopen(row)
    own = rows_below(
        row.pk,
        context.project_id,
        patch.knowledge_references,
        patch.agent_steps,
        context.tool_ids,
        stored,
        first_iteration=stored.next_iteration,
        prices=context.prices,
    )
    own.flags.update(without_known(change.flags, context, own, stored))
    if row.is_completed and has_new(own, stored):
        raise Conflict(
            _("The message is completed and accepts no new steps or calls."),
            field="agent_steps",
            code="message_completed",
        )
    changed = {**resumed, **_patched_fields(context, patch, row)}
    if change.receipts:
        changed["redactions"] = row.redactions + receipts_as_json(change.receipts)
    has_changed, _counted = write_merge(db, context, row, changed, own, stored, only_open=False)
    if not has_changed:
        return
    counts = finish_message(db, context, row, changed, stored, None, before) + Counts(active_at=context.now)
    add_to_sessions(db, {row.session_id: counts})
    context_rows.add(db, context.inputs.values())
    log_changes(db, {row.pk: row.project_id}, sealed=[row.pk] if was_completed or row.is_completed else [])


def _patched_fields(context: Context, patch: records.MessagePatch, row: Message) -> dict[str, Any]:
    """Return the columns in a patch with their new values; null empties a column."""
    changed: dict[str, Any] = {}
    if patch.content is not UNSET:
        changed["content"], parts = text_of(patch.content)
        if parts is not None:
            changed["content_parts"] = parts
    if patch.content_parts is not UNSET:
        changed["content_parts"] = patch.content_parts
    if patch.usage is not UNSET:
        changed["usage"] = patch.usage
    if patch.error is not UNSET:
        changed["error"] = patch.error or ""
    if patch.metadata is not UNSET:
        changed["metadata"] = patch.metadata or {}
    if patch.is_completed is not UNSET:
        changed["is_completed"] = patch.is_completed
        if patch.is_completed and not row.is_completed:
            changed["completed_at"] = context.now
        elif not patch.is_completed:
            changed["completed_at"] = None
    if patch.completed_at is not UNSET:
        changed["completed_at"] = patch.completed_at
    elif patch.duration is not UNSET and patch.duration is not None:
        changed["completed_at"] = row.created_at + timedelta(milliseconds=patch.duration)
    return {name: pg_text.storable(value) for name, value in changed.items()}
