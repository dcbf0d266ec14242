"""Runs that were closed because nobody was left to end them, and that go on when their sender is back.

An event of the type `workflow_execute_complete` with `data.interrupted` closes a run that is open:

* "process_ended": a recorder found what a dead process had left. `timestamp` is when it found it; a
  run of which something later was said goes on in another process, and stays open.
* "no_news": the command close_stale_runs heard nothing of the run for a long time.

The run is completed then, with the flag `interrupted`, a text as its error unless it has one, and the reason in its metadata.
Whatever its sender says later opens it again, or completes it as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from .models import Message
from .timestamps import instant_text, parse_instant

FLAG = "interrupted"
"""In the health of a message; traces_app.schema.health_flags has it among the others, and can be read without Django."""
PROCESS_ENDED, NO_NEWS = "process_ended", "no_news"
TEXTS: Mapping[str, str] = {
    PROCESS_ENDED: gettext_noop("Interrupted: the process that recorded this run ended before the run did."),
    NO_NEWS: gettext_noop("Interrupted: the sender of this run has not been heard of for a long time."),
}
"""The error of a run that was closed, by the reason. Stored in English, shown in the language of the reader."""
_KEY = "interrupted"


def metadata_of(reason: str, at: datetime) -> dict[str, Any]:
    """What the metadata of a run says of its interruption."""
    return {_KEY: {"reason": reason, "at": instant_text(at)}}


def text_of(reason: str) -> str:
    """The error of a run that was closed for this reason; of one that nobody here knows, that of silence."""
    return TEXTS.get(reason, TEXTS[NO_NEWS])


def is_interrupted(row: Message) -> bool:
    return row.is_completed and FLAG in row.health


def goes_on(row: Message, heard_at: datetime | None) -> bool:
    """Whether an interrupted run goes on with what is said now. `heard_at`: when the latest of that happened, where it came
    as events: those of a dead process may arrive after its end was told."""
    said = row.metadata.get(_KEY)
    if heard_at is None or not isinstance(said, dict) or said.get("reason") != PROCESS_ENDED:
        return True
    try:
        return heard_at > parse_instant(str(said.get("at")))
    except ValueError:
        return True  # metadata is not ours alone


def reopen(row: Message) -> dict[str, Any]:
    """Makes an interrupted run an open one again; returns the columns that change."""
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
    """An error as people read it: texts of ours in their language."""
    return _(error) if error in TEXTS.values() else error
