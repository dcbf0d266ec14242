"""Convert the outcomes of writing sessions, messages and events to response schemas."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from traces_app.events.batch import EventOutcome
from traces_app.ingest.batch import MessageOutcome, Refusal, SessionOutcome
from traces_app.queries.schemas import outcomes as schemas


def refusal_text(refusal: Refusal) -> str:
    match refusal:
        case "session_deleted":
            return _("The session is in the trash. Restore it first.")
        case "session_purged":
            return _("The session was purged.")
        case "message_deleted":
            return _("The message is in the trash. Restore it first.")
        case "message_purged":
            return _("The message was purged.")
        case "message_completed":
            return _("The message is completed. It accepts results of its open calls, but no new steps or calls.")


def sent_messages(outcomes: Sequence[MessageOutcome], path: str) -> schemas.SentMessages:
    """Return the outcomes of messages; `path` is that of their list in the body, "" for the body itself."""
    return schemas.SentMessages(results=_results(outcomes), refused=_refused(outcomes, path))


def sent_sessions(outcomes: Sequence[SessionOutcome]) -> schemas.SentSessions:
    refused: list[schemas.Refusal] = []
    for index, outcome in enumerate(outcomes):
        path = f"sessions[{index}]"
        if outcome.refused:
            # One refusal, because all its messages are refused with it.
            refused.append(refusal_at(path, outcome.refused))
        else:
            refused += _refused(outcome.messages, f"{path}.messages")
    sessions = [
        schemas.SentSession(
            id=None if outcome.id is None else str(outcome.id),
            external_id=outcome.external_id,
            created=outcome.created,
            messages=_results(outcome.messages),
        )
        for outcome in outcomes
    ]
    return schemas.SentSessions(sessions=sessions, refused=refused)


def _results(outcomes: Sequence[MessageOutcome]) -> list[schemas.SentMessage]:
    return [
        schemas.SentMessage(
            id=None if outcome.id is None else str(outcome.id),
            external_id=outcome.external_id,
            state=outcome.state,
        )
        for outcome in outcomes
    ]


def _refused(outcomes: Sequence[MessageOutcome], path: str) -> list[schemas.Refusal]:
    return [
        refusal_at(f"{path}[{index}]", outcome.refused) for index, outcome in enumerate(outcomes) if outcome.refused
    ]


def sent_events(outcomes: Sequence[EventOutcome]) -> schemas.SentEvents:
    """Return the outcomes of a batch of events. Paths are below its `events`."""
    paths = [f"events[{place}]" for place in range(len(outcomes))]
    return schemas.SentEvents(results=event_results(outcomes), refused=refused_events(outcomes, paths))


def event_results(outcomes: Sequence[EventOutcome]) -> list[schemas.SentEvent]:
    return [
        schemas.SentEvent(
            session_id=None if outcome.session_id is None else str(outcome.session_id),
            external_id=outcome.external_id,
            state=outcome.state,
            seq=outcome.seq,
        )
        for outcome in outcomes
    ]


def refused_events(outcomes: Sequence[EventOutcome], paths: Sequence[str]) -> list[schemas.Refusal]:
    """Return the events that were refused; `paths` are those of all events in the body."""
    return [refusal_at(path, outcome.refused) for outcome, path in zip(outcomes, paths, strict=True) if outcome.refused]


def refusal_at(path: str, refusal: Refusal) -> schemas.Refusal:
    """Return the refusal of what is at `path` in the body."""
    return schemas.Refusal(path=path, code=refusal, message=refusal_text(refusal))
