"""Sessions that wait for a person, for example for an approval: what pages say about them, in one place.

A producer states it with the status "paused", and what it waits for with `current_phase` ("waiting for approval"). The calls
that wait are in `traces_app.queries.waiting`.
"""

from __future__ import annotations

from django.utils.translation import gettext as _

from .models import Session
from .safe_text import one_line

PHASE_CHARACTERS = 200


def status_of_open_message(session: Session) -> Session.Status:
    """Return the status of an open message of `session`: PAUSED if the session waits for a person, otherwise RUNNING."""
    return Session.Status.PAUSED if session.status == Session.Status.PAUSED else Session.Status.RUNNING


def waiting_words(session: Session) -> str:
    """Return what a paused session waits for, such as "Paused: waiting for approval"; "" for other sessions."""
    if session.status != Session.Status.PAUSED:
        return ""
    phase = one_line(session.current_phase, PHASE_CHARACTERS)
    return _("Paused: %(phase)s") % {"phase": phase} if phase else _("Paused: it waits for a person.")
