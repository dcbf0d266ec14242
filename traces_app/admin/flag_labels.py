"""Labels of health flags and losses for people: "2 calls without result", "1 repaired id"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Count, Func, IntegerField, Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.db import Database
from messages_app.models import Message
from messages_app.sql.pagination import ids_below
from traces_app.models import ToolCall
from tracesite_sdk.records.health_flags import (
    EMPTY_TOOL_NAME,
    EVENTS_DROPPED,
    GUESSED_RESULT,
    INTERRUPTED,
    INVALID_ARGUMENTS,
    MISSING_RESULT,
    NAIVE_TIME,
    ORPHAN_RESULT,
    PARENT_UNKNOWN,
    REPAIRED_ID,
    REPAIRED_NAME,
    SAMPLED,
    STOPPED,
    TIME_OUT_OF_RANGE,
    TIME_WENT_BACK,
    TRUNCATED,
)
from tracesite_sdk.records.losses import counts_of

FLAG_LABELS: Mapping[str, Any] = {
    STOPPED: gettext_lazy("stopped"),
    INTERRUPTED: gettext_lazy("interrupted"),
    EVENTS_DROPPED: gettext_lazy("events lost"),
    SAMPLED: gettext_lazy("calls sampled out"),
    TRUNCATED: gettext_lazy("values truncated"),
    MISSING_RESULT: gettext_lazy("call without result"),
    ORPHAN_RESULT: gettext_lazy("result without call"),
    GUESSED_RESULT: gettext_lazy("result matched by order"),
    REPAIRED_ID: gettext_lazy("repaired ID"),
    REPAIRED_NAME: gettext_lazy("repaired tool name"),
    EMPTY_TOOL_NAME: gettext_lazy("call without a tool name"),
    INVALID_ARGUMENTS: gettext_lazy("arguments are not valid JSON"),
    PARENT_UNKNOWN: gettext_lazy("unknown parent call"),
    TIME_OUT_OF_RANGE: gettext_lazy("time out of range"),
    NAIVE_TIME: gettext_lazy("time without time zone, read as UTC"),
    TIME_WENT_BACK: gettext_lazy("timestamps out of order"),
}
"""Labels of the flags, in the order of their display."""

_FLAGS_SHOWN = 50

# For each flag the condition by which its calls are found, and the label for their number. Used only for flags that are
# set, because free text that a tool takes by design is stored under `_raw`, too.
_COUNTED: Mapping[str, tuple[Q, Callable[[int], str]]] = {
    MISSING_RESULT: (
        Q(status=ToolCall.Status.PENDING),
        lambda number: ngettext("%(number)s call without result", "%(number)s calls without result", number),
    ),
    ORPHAN_RESULT: (
        Q(metadata__has_key=ORPHAN_RESULT),
        lambda number: ngettext("%(number)s result without call", "%(number)s results without call", number),
    ),
    GUESSED_RESULT: (
        Q(metadata__has_key=GUESSED_RESULT),
        lambda number: ngettext("%(number)s result matched by order", "%(number)s results matched by order", number),
    ),
    REPAIRED_ID: (
        Q(metadata__has_key=REPAIRED_ID),
        lambda number: ngettext("%(number)s repaired ID", "%(number)s repaired IDs", number),
    ),
    REPAIRED_NAME: (
        Q(metadata__has_key=REPAIRED_NAME),
        lambda number: ngettext("%(number)s repaired tool name", "%(number)s repaired tool names", number),
    ),
    EMPTY_TOOL_NAME: (
        Q(tool__name=""),
        lambda number: ngettext("%(number)s call without a tool name", "%(number)s calls without a tool name", number),
    ),
    INVALID_ARGUMENTS: (
        Q(args__has_key="_raw"),
        lambda number: ngettext(
            "%(number)s call with invalid JSON arguments",
            "%(number)s calls with invalid JSON arguments",
            number,
        ),
    ),
    PARENT_UNKNOWN: (
        Q(metadata__has_key="parent"),
        lambda number: ngettext("%(number)s unknown parent call", "%(number)s unknown parent calls", number),
    ),
}

# Sentences for the loss counters of a recorder, see losses.py.
_LOSSES: Mapping[str, Callable[[int], str]] = {
    "dropped": lambda number: ngettext("%(number)s event was lost.", "%(number)s events were lost.", number),
    "failed": lambda number: ngettext(
        "%(number)s event could not be recorded.", "%(number)s events could not be recorded.", number
    ),
    "sampled_out": lambda number: ngettext(
        "%(number)s call was sampled out.", "%(number)s calls were sampled out.", number
    ),
    "truncated": lambda number: ngettext(
        "%(number)s value was truncated.", "%(number)s values were truncated.", number
    ),
}


def losses_of(db: Database, message: Message) -> tuple[list[str], str]:
    """Return the losses of a message (lost, sampled out, truncated) as sentences, and one about its secrets or "". One query.

    A redacted secret is no loss: LangChain puts a placeholder for each key of its client into every run.
    """
    row = (
        db.rows(Message.with_deleted)
        .filter(pk=message.pk)
        .annotate(secrets=Func("redactions", function="jsonb_array_length", output_field=IntegerField()))
        .values_list("pk", "metadata__recorder", "secrets")
        .first()
    )
    _id, counters, secrets = row or (None, None, 0)
    counts = counts_of({"recorder": counters})
    # The larger number: a receipt of the recorder may stand for several secrets, and some receipts are the server's.
    redacted = max(counts.get("redacted", 0), secrets)
    found = [
        label(counts[name]) % {"number": f"{counts[name]:,}"} for name, label in _LOSSES.items() if counts.get(name)
    ]
    if TRUNCATED in message.health and not counts.get("truncated"):
        # The number arrives with the end of the run.
        found.append(_("Values were truncated."))
    about_secrets = ngettext("%(number)s secret was redacted.", "%(number)s secrets were redacted.", redacted)
    return found, about_secrets % {"number": f"{redacted:,}"} if redacted else ""


def problems_of(db: Database, message: Message) -> list[str]:
    """Return the labels of the flags of a message, with the number of calls where it is known. At most one query."""
    flags = list(dict.fromkeys(message.health))
    if message.is_completed and message.call_count:
        flags.append(MISSING_RESULT)
    counts = _counts(db, message, [flag for flag in flags if flag in _COUNTED])
    labels = []
    known = [flag for flag in FLAG_LABELS if flag in flags]
    for flag in [*known, *(flag for flag in flags if flag not in FLAG_LABELS)]:
        if number := counts.get(flag, 0):
            labels.append(_COUNTED[flag][1](number) % {"number": f"{number:,}"})
        elif flag != MISSING_RESULT:
            labels.append(str(FLAG_LABELS.get(flag, flag)))
    return labels[:_FLAGS_SHOWN]


def _counts(db: Database, message: Message, flags: list[str]) -> dict[str, int]:
    if not flags or not message.call_count:
        return {}
    calls = db.rows(ToolCall.with_deleted).filter(message_id=message.pk, **ids_below([message.pk]))
    found: dict[str, int] = calls.aggregate(**{flag: Count("pk", filter=_COUNTED[flag][0]) for flag in flags})
    return found
