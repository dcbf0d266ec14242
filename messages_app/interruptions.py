"""Interrupted runs: closed because their sender stopped sending, and continued if it comes back.

An event of the type `workflow_execute_complete` with `data.interrupted` closes an open run:

* "process_ended": a recorder found the spool of a dead process, at the time `timestamp`. A run with later events continues
  in another process and stays open.
* "no_news": the command close_stale_runs found no change of the run for a long time.

The run is then completed, with the flag `interrupted`, a text as its error unless it has one, and the reason in its
metadata. Later data of its sender opens it again, or completes it like any other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from tracesite_sdk.records.health_flags import INTERRUPTED

from .models import Message
from .timestamps import instant_text, parse_instant

FLAG = INTERRUPTED
"""The health flag."""
PROCESS_ENDED, NO_NEWS = "process_ended", "no_news"
TEXTS: Mapping[str, str] = {
    PROCESS_ENDED: gettext_noop("Interrupted: the process that recorded this run ended before the run did."),
    NO_NEWS: gettext_noop("Interrupted: the sender of this run has not been heard of for a long time."),
}
"""The error of a closed run, by reason. Stored in English, shown in the reader's language."""
_KEY = "interrupted"


def metadata_of(reason: str, at: datetime) -> dict[str, Any]:
    """Return the metadata of an interrupted run."""
    return {_KEY: {"reason": reason, "at": instant_text(at)}}


def text_of(reason: str) -> str:
    """Return the error of a run that was closed for this reason; for an unknown reason the text of NO_NEWS."""
    return TEXTS.get(reason, TEXTS[NO_NEWS])


def is_interrupted(row: Message) -> bool:
    return row.is_completed and FLAG in row.health


def interruption_of(row: Message) -> str:
    """Return why a run was interrupted; "" if it was not."""
    return reason_of(row.metadata) if is_interrupted(row) else ""


def reason_of(metadata: Mapping[str, Any]) -> str:
    """Return the reason in the metadata of an interrupted run; producers may set this key, too."""
    interruption = metadata.get(_KEY)
    reason = interruption.get("reason") if isinstance(interruption, dict) else None
    return str(reason) if reason in TEXTS else NO_NEWS


def is_continued(row: Message, latest_event_at: datetime | None) -> bool:
    """Return whether new data continues an interrupted run. `latest_event_at` is None for data without events.

    Events of a dead process may arrive after the report of its end; only later ones continue the run.
    """
    interruption = row.metadata.get(_KEY)
    if latest_event_at is None or not isinstance(interruption, dict) or interruption.get("reason") != PROCESS_ENDED:
        return True
    try:
        return latest_event_at > parse_instant(str(interruption.get("at")))
    except ValueError:
        return True  # producers may set this key, too


def reopen(row: Message) -> dict[str, Any]:
    """Open an interrupted run again; return the changed columns."""
    changed: dict[str, Any] = {
        "is_completed": False,
        "completed_at": None,
        "health": [flag for flag in row.health if flag != FLAG],
        "metadata": {name: value for name, value in row.metadata.items() if name != _KEY},
    }
    if row.error in TEXTS.values():
        changed["error"] = ""
    for name, value in changed.items():
        setattr(row, name, value)
    return changed


def shown_error(error: str) -> str:
    """Return an error for display: the texts of TEXTS in the reader's language."""
    return _(error) if error in TEXTS.values() else error
