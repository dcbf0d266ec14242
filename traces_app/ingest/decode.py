"""Decode and validate the body of a request into records.

Every error is an InvalidInput with the JSON path, the value found and the values allowed. Fields that a record does not
have are kept in its `metadata`, because newer producers may send them, except derived fields of our own responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput, TooLarge
from tracesite_sdk import records
from tracesite_sdk.normalize.extra_fields import FIELDS, move_extra_fields_to_metadata
from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.normalize.records import MOST_PUT_IN, MOST_PUT_IN_MESSAGE, bytes_put_in
from tracesite_sdk.normalize.scores import score_value
from tracesite_sdk.records import ids

from . import raw_json
from .mismatches import first_mismatch, join

MOST_SCORES = 1_000
"""Scores in one request."""
MOST_ITEMS = 50_000
"""Sessions, messages and scores, or events, in one request."""
MOST_BELOW = 200_000
"""Steps, calls and references in them."""

T = TypeVar("T", bound=records.Record)
D = TypeVar("D")


class _Ingest(msgspec.Struct, forbid_unknown_fields=True):
    sessions: list[raw_json.RawSession]


_INGEST = msgspec.json.Decoder(_Ingest)
_SESSION = msgspec.json.Decoder(raw_json.RawSession)
_MESSAGE = msgspec.json.Decoder(raw_json.RawMessage)
_MESSAGES = msgspec.json.Decoder(list[raw_json.RawMessage])


def decode_session(body: bytes) -> records.Session:
    """Decode one session, with or without messages."""
    _check_numbers(body, lambda: [json_of(body)])
    plain = _plain(_SESSION, body, lambda session: session.messages)
    session = _session(json_of(body), "") if plain is None else _checked_session(plain, "")
    _check_references([(session, "")])
    return session


def decode_session_patch(body: bytes) -> records.SessionPatch:
    return _patch(json_of(body), records.SessionPatch)


def decode_messages(body: bytes) -> list[records.Message]:
    """Decode one nested message, or a list of them."""
    _check_numbers(body, lambda: [{"messages": _one_or_more(json_of(body))}])
    if body.lstrip()[:1] == b"{":
        message = _plain(_MESSAGE, body, lambda message: (message,))
        if message is not None:
            return [_checked_message(message, "")]
    else:
        messages = _plain(_MESSAGES, body, lambda messages: messages)
        if messages is not None:
            return [_checked_message(message, f"[{index}]") for index, message in enumerate(messages)]
    document = json_of(body)
    if isinstance(document, list):
        return [_message(item, f"[{index}]") for index, item in enumerate(document)]
    return [_message(document, "")]


def decode_message_patch(body: bytes) -> records.MessagePatch:
    _check_numbers(body, lambda: [{"messages": [json_of(body)]}])
    patch = _patch(json_of(body), records.MessagePatch)
    latest = _latest()
    if patch.completed_at is not msgspec.UNSET:
        _check_time(patch.completed_at, latest, "completed_at")
    _check_children(patch.agent_steps, "", latest)
    return patch


def decode_scores(body: bytes) -> tuple[list[records.Score], bool]:
    """Decode a score or a list of them; return them, and whether they came as a list. Paths count from `[0]`."""
    document = json_of(body)
    is_list = isinstance(document, list)
    sent = _one_or_more(document)
    if len(sent) > MOST_SCORES:
        raise InvalidInput(_("Too many scores: at most %(most)d are allowed.") % {"most": MOST_SCORES})
    scores = []
    for index, item in enumerate(sent):
        path = f"[{index}]" if is_list else ""
        scores.append(score_from(item, path))
    return scores, is_list


def score_from(document: Any, path: str) -> records.Score:
    """Validate an object with the fields of records.Score. Raise InvalidInput."""
    return _checked_score(_record(document, records.Score, path), path)


def decode_score_patch(body: bytes) -> records.ScorePatch:
    patch = _patch(json_of(body), records.ScorePatch)
    if patch.value is not msgspec.UNSET:
        _check_value(records.Score(name="any", value=patch.value), "")
    return patch


def decode_ingest(body: bytes, *, ndjson: bool) -> list[records.Session]:
    """Decode `{"sessions": [...]}`, or with `ndjson` one session a line; paths count lines from `sessions[0]`."""
    if ndjson:
        check_number(body.count(b"\n"))
    _check_numbers(body, lambda: _items(body, ndjson=ndjson))
    batch = None if ndjson else _plain(_INGEST, body, _messages)
    if batch is not None:
        sessions = [_checked_session(session, f"sessions[{index}]") for index, session in enumerate(batch.sessions)]
    else:
        sessions = [_session(item, f"sessions[{index}]") for index, item in enumerate(_items(body, ndjson=ndjson))]
    for index, session in enumerate(sessions):
        if not (session.id or session.external_id):
            raise InvalidInput(
                _("A session needs an external_id, or the id of an existing session."),
                field=f"sessions[{index}].external_id",
            )
    _check_references([(session, f"sessions[{index}]") for index, session in enumerate(sessions)])
    return sessions


# --- Steps ------------------------------------------------------------------------------------------------------


def _messages(batch: _Ingest) -> Iterator[raw_json.RawMessage]:
    return (message for session in batch.sessions for message in session.messages or ())


def _plain(
    decoder: msgspec.json.Decoder[D], body: bytes, messages: Callable[[D], Iterable[raw_json.RawMessage] | None]
) -> D | None:
    """Decode a body whose objects have only fields of the records; return None for any other.

    Nearly all bodies are like that, and decoding them directly into records takes half the time. It can neither keep
    unknown fields nor report errors as precisely.
    """
    try:
        decoded = decoder.decode(body)
        raw_json.decode_what_cannot_stay(messages(decoded) or ())
        return decoded
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _items(body: bytes, *, ndjson: bool) -> list[Any]:
    if ndjson:
        return [
            json_of(line, f"sessions[{index}]") for index, line in enumerate(filter(bytes.strip, body.split(b"\n")))
        ]
    document = json_of(body)
    if not isinstance(document, dict) or not isinstance(document.get("sessions"), list):
        raise InvalidInput(
            _('Expected an object with a list of sessions: {"sessions": [{"external_id": ..., "messages": [...]}]}.'),
            field="sessions",
        )
    sessions: list[Any] = document["sessions"]
    return sessions


def check_number(lines_or_items: int) -> None:
    """Raise TooLarge for more than MOST_ITEMS sessions, messages, scores or events, or for as many lines, even empty ones."""
    if lines_or_items > MOST_ITEMS:
        raise TooLarge(
            _(
                "The body has more than %(most)d sessions, messages, scores, events or lines. Split it into several requests."
            )
            % {"most": MOST_ITEMS}
        )


def _check_numbers(body: bytes, sessions: Callable[[], Iterable[Any]]) -> None:
    """Raise TooLarge for too many items in a body with these sessions, as plain JSON of any form.

    They are counted before records are made of them, which take several times the memory.
    """
    if body.count(b"{") <= MOST_ITEMS:
        return
    count = below = 0
    for session in map(fields, sessions()):
        messages = items(session.get("messages"))
        count += 1 + len(messages) + len(items(session.get("scores")))
        for message in map(fields, messages):
            steps = items(message.get("agent_steps"))
            below += len(steps) + len(items(message.get("knowledge_references")))
            below += sum(len(items(fields(step).get("tool_calls"))) for step in steps)
    check_number(count)
    if below > MOST_BELOW:
        raise TooLarge(
            _("The body has more than %(most)d steps, calls and references. Split it into several requests.")
            % {"most": MOST_BELOW}
        )


def _one_or_more(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def json_of(body: bytes, path: str = "") -> Any:
    try:
        return decode_json(body)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            _("The body is not valid JSON in UTF-8: %(reason)s.") % {"reason": error},
            field=path or None,
            code="invalid_json",
        ) from error
    except RecursionError as error:
        raise InvalidInput(_("The JSON is nested too deeply."), field=path or None, code="invalid_json") from error


def _session(document: Any, path: str) -> records.Session:
    return _checked_session(_record(document, records.Session, path), path)


def _message(document: Any, path: str) -> records.Message:
    return _checked_message(_record(document, records.Message, path), path)


def _patch(document: Any, type_: type[T]) -> T:
    """Decode a patch. Reject fields that cannot be changed or are misspelt, because they must not seem to be changed."""
    if isinstance(document, dict):
        for name in sorted(document.keys() - FIELDS[type_]):
            raise InvalidInput(
                _("This field cannot be changed here. Allowed: %(fields)s.")
                % {"fields": ", ".join(sorted(FIELDS[type_]))},
                field=name,
            )
    return _record(document, type_, "")


def _record(document: Any, type_: type[T], path: str) -> T:
    try:
        move_extra_fields_to_metadata(document, type_)
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        raise invalid(error, document, type_, path) from error
    except RecursionError as error:
        raise InvalidInput(_("The JSON is nested too deeply."), field=path or None, code="invalid_json") from error


# --- Checks beyond types ------------------------------------------------------------------------------------


def _checked_session(session: records.Session, path: str) -> records.Session:
    _check_time(session.created_at, _latest(), join(path, "created_at"))
    for index, message in enumerate(session.messages or ()):
        _checked_message(message, join(path, f"messages[{index}]"))
    for index, score in enumerate(session.scores or ()):
        _checked_score(score, join(path, f"scores[{index}]"))
    return session


def _check_references(sessions: Sequence[tuple[records.Session, str]]) -> None:
    """Raise TooLarge if references in the inputs of these sessions, given with their paths, stand for too much."""
    total = 0
    for session, path in sessions:
        for index, size in enumerate(bytes_put_in(session)):
            total += size
            if size > MOST_PUT_IN_MESSAGE or total > MOST_PUT_IN:
                raise TooLarge(
                    _(
                        "References in the inputs of steps stand for too much: at most %(message)d bytes in a message, and "
                        "%(request)d in a request."
                    )
                    % {"message": MOST_PUT_IN_MESSAGE, "request": MOST_PUT_IN},
                    field=join(path, f"messages[{index}].agent_steps"),
                )


def _checked_score(score: records.Score, path: str) -> records.Score:
    _check_time(score.created_at, _latest(), join(path, "created_at"))
    _check_value(score, path)
    return score


def _check_value(score: records.Score, path: str) -> None:
    try:
        score_value(score.value, score.kind, comment=score.comment)
    except ValueError as error:
        raise InvalidInput(f"{error}.", field=join(path, "value")) from error


def _checked_message(message: records.Message, path: str) -> records.Message:
    latest = _latest()
    _check_time(message.created_at, latest, join(path, "created_at"))
    _check_time(message.completed_at, latest, join(path, "completed_at"))
    if message.role != "assistant" and message.agent_steps:
        raise InvalidInput(
            _("Only assistant messages have steps; the role of this one is %(role)s.") % {"role": message.role},
            field=join(path, "agent_steps"),
        )
    _check_children(message.agent_steps or [], path, latest)
    return message


def _check_children(steps: list[records.AgentStep], path: str, latest: datetime) -> None:
    for i, step in enumerate(steps):
        # Paths are built only for errors, because most batches have none.
        if not _fits(step.timestamp, latest):
            _check_time(step.timestamp, latest, join(path, f"agent_steps[{i}].timestamp"))
        for j, call in enumerate(step.tool_calls or ()):
            if not (_fits(call.started_at, latest) and _fits(call.completed_at, latest)):
                at = join(path, f"agent_steps[{i}].tool_calls[{j}]")
                _check_time(call.started_at, latest, f"{at}.started_at")
                _check_time(call.completed_at, latest, f"{at}.completed_at")


def _fits(instant: datetime | None, latest: datetime) -> bool:
    return instant is None or ids.EARLIEST <= instant <= latest


def _check_time(instant: datetime | None, latest: datetime, path: str) -> None:
    if instant is not None and not _fits(instant, latest):
        raise InvalidInput(
            _("%(time)s is out of range. Allowed: 2000-01-01 to one day from now.") % {"time": instant.isoformat()},
            field=path,
        )


def _latest() -> datetime:
    return timezone.now() + ids.LATEST_AHEAD


# --- Errors ----------------------------------------------------------------------------------------------


def invalid(error: msgspec.ValidationError, document: Any, type_: Any, path: str = "") -> InvalidInput:
    """Return what msgspec has found in a document below `path` that cannot be `type_`, in words for people."""
    mismatch = first_mismatch(document, type_)
    if mismatch is None:
        return InvalidInput(f"{error}.", field=path or None)
    return InvalidInput(mismatch.text, field=join(path, mismatch.path) or None)
