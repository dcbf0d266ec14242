"""LangSmith's own protocol: runs, posted at their start and patched later, as pieces of spans.

Source: langchain-ai/langsmith-sdk, python/langsmith/_internal/_operations.py and schemas.py. A run is an object; in a
multipart request it has a part `post.{id}` or `patch.{id}`, and parts for its large fields: `post.{id}.inputs`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, items, text

from .pieces import InvalidItem, decoded_json, nanoseconds, span_id, uuid_of
from .span import Attributes, InvalidBody, Scope, Span, SpanEvent, TooManyItems, check_numbers, encoded_bytes
from .wire_scores import langsmith_change, langsmith_feedback

Operation = Literal["post", "patch"]

LARGEST_ATTACHMENT = 1024 * 1024
"""Bytes of an attachment that are kept; of a larger one the size and the digest are."""
MOST_PARTS = 50_000
"""Parts of a multipart request: runs, their large fields, and their attachments."""
LONGEST_HEAD = 8_192
"""Bytes of the headers of a part."""
_LONGEST_BOUNDARY = 70  # as RFC 2046 has it
_FIELDS = ("inputs", "outputs", "events", "extra", "error", "serialized")
"""Fields of a run that have parts of their own."""
_SEGMENT = re.compile(r"(\d{8}T\d{6})(\d{6})Z(.+)")
"""One run in a dotted order: its start and its id."""
_TAKEN = frozenset(
    {"id", "trace_id", "parent_run_id", "name", "run_type", "start_time", "end_time", "events", "extra", "tags"}
)


@dataclass
class Decoded:
    """The content of one request."""

    spans: list[Span] = field(default_factory=list)
    feedback: list[records.Score] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """For people: what was refused, and why."""


# --- Requests ---------------------------------------------------------------------------------------------------------


def decode_batch(body: bytes) -> Decoded:
    """Return the runs of `{"post": [...], "patch": [...]}`. Raise InvalidBody and TooManyItems."""
    request = decoded_json(body)
    lists = [request[name] for name in ("post", "patch") if name in request] if isinstance(request, dict) else []
    if not lists or not all(isinstance(runs, list) for runs in lists):
        raise InvalidBody('expected {"post": [run, ...], "patch": [run, ...]}')
    _check_numbers([run for runs in lists for run in runs])
    found = Decoded()
    operations: tuple[Operation, ...] = ("post", "patch")
    for operation in operations:
        for index, run in enumerate(request.get(operation, [])):
            _add(found, operation, run, f"{operation}[{index}]")
    return found


def decode_run(body: bytes, operation: Operation, id_: str | None = None) -> Decoded:
    """Return the one run of a request; `id_` is the id in its path. Raise InvalidBody and TooManyItems."""
    run = decoded_json(body)
    if not isinstance(run, dict):
        raise InvalidBody("expected a run: an object")
    _check_numbers([run])
    found = Decoded()
    _add(found, operation, run if id_ is None else {**run, "id": id_}, "run")
    return found


def decode_feedback(body: bytes) -> tuple[records.Score, dict[str, Any]]:
    """Return a feedback, and the object that it was. Raise InvalidBody and InvalidItem."""
    value = decoded_json(body)
    if not isinstance(value, dict):
        raise InvalidBody("expected a feedback: an object")
    return _feedback(value), value


def decode_feedback_change(body: bytes) -> tuple[records.ScorePatch, dict[str, Any]]:
    """Return the change of a feedback, and the object that it was. Raise InvalidBody and InvalidItem."""
    value = decoded_json(body)
    if not isinstance(value, dict):
        raise InvalidBody("expected a feedback: an object")
    return langsmith_change(value), value


def decode_multipart(body: bytes, boundary: str) -> Decoded:
    """Return the runs and the feedback of a multipart request. Raise InvalidBody and TooManyItems."""
    found = Decoded()
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    beside: list[tuple[str, str, str, Any]] = []
    attachments: list[tuple[str, str, Any]] = []
    broken: InvalidBody | None = None
    for name, content_type, content in parts(body, boundary):
        try:
            match name.split("."):
                case ["post" | "patch" as operation, id_]:
                    run = decoded_part(name, content)
                    if isinstance(run, dict):
                        runs[operation, id_] = {**run, "id": id_}
                    else:
                        found.errors.append(f"{name}: expected an object")
                case ["post" | "patch" as operation, id_, of_run] if of_run in _FIELDS:
                    beside.append((operation, id_, of_run, decoded_part(name, content)))
                case ["attachment", id_, *rest] if rest:
                    attachments.append((id_, ".".join(rest), _attachment(content_type, content)))
                case ["feedback", _id]:
                    _add_feedback(found, decoded_part(name, content), name)
                case _:
                    found.errors.append(
                        f"{name[:80]}: unknown part, expected post.{{id}}, patch.{{id}} or a field of one"
                    )
        except InvalidBody as error:
            broken = broken or error
            found.errors.append(str(error))
    if broken is not None and not runs and not found.feedback:
        raise broken
    for of_operation, id_, of_run, value in beside:
        if (of_operation, id_) in runs:
            runs[of_operation, id_][of_run] = value
        else:
            found.errors.append(f"{of_operation}.{id_[:40]}.{of_run}: a part without {of_operation}.{id_[:40]}")
    for id_, name, value in attachments:
        of = runs.get(("post", id_)) or runs.get(("patch", id_))
        if of is None:
            found.errors.append(f"attachment.{id_[:40]}: a part without a run of this id")
        else:
            of.setdefault("attachments", {})[name] = value
    _check_numbers([*runs.values(), *found.feedback])
    for (of_operation, id_), run in runs.items():
        _add(found, "post" if of_operation == "post" else "patch", run, f"{of_operation}.{id_[:40]}")
    return found


def parts(body: bytes, boundary: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield name, content type and content of each part. Raise InvalidBody and TooManyItems. Source: RFC 7578 and 2046."""
    if len(boundary) > _LONGEST_BOUNDARY:
        raise InvalidBody(f"multipart with a boundary of more than {_LONGEST_BOUNDARY} characters")
    mark = b"--" + boundary.encode("latin-1", "replace")
    start = 0 if body.startswith(mark) else body.find(b"\r\n" + mark) + 2
    if not boundary or not body[start:].startswith(mark):
        raise InvalidBody("multipart without its boundary")
    pieces = body[start + len(mark) :].split(b"\r\n" + mark, MOST_PARTS + 1)
    if len(pieces) > MOST_PARTS + 1:
        raise TooManyItems(MOST_PARTS, "parts")
    if not pieces[-1].startswith(b"--") or any(not piece.startswith(b"\r\n") for piece in pieces[:-1]):
        raise InvalidBody("multipart that ends before its closing boundary")
    for piece in pieces[:-1]:
        end = piece.find(b"\r\n\r\n", 2)
        if end < 0:
            raise InvalidBody("a part without an empty line after its headers")
        if end > LONGEST_HEAD:
            raise TooManyItems(LONGEST_HEAD, "bytes of headers in a part")
        head, content = piece[2:end], piece[end + 4 :]
        headers = dict(_header(line) for line in head.split(b"\r\n"))
        name = re.search(r'\bname="([^"]*)"', headers.get("content-disposition", ""))
        if name is None:
            raise InvalidBody("a part without a name in its Content-Disposition")
        yield name[1], headers.get("content-type", ""), content


def _header(line: bytes) -> tuple[str, str]:
    name, _separator, value = line.decode("utf-8", "replace").partition(":")
    return name.strip().lower(), value.strip()


def decoded_part(name: str, content: bytes) -> Any:
    try:
        return decoded_json(content)
    except InvalidBody as error:
        raise InvalidBody(f"part {name[:80]}: {error}") from error


def _attachment(content_type: str, content: bytes) -> dict[str, Any]:
    about: dict[str, Any] = {"content_type": content_type, "size": len(content)}
    if len(content) > LARGEST_ATTACHMENT:
        return {**about, "sha256": sha256(content).hexdigest()}
    return {**about, "data": encoded_bytes(content)}


# --- Runs -------------------------------------------------------------------------------------------------------------


def _check_numbers(runs: Collection[Any]) -> None:
    """Raise TooManyItems if a request with these runs is to be split."""
    check_numbers(len(runs), sum(len(items(fields(run).get("events"))) for run in runs))


def _add(found: Decoded, operation: Operation, run: Any, where: str) -> None:
    try:
        found.spans.append(span_of(operation, run))
    except InvalidItem as error:
        found.errors.append(f"{where}.{error}")


def span_of(operation: Operation, run: Any) -> Span:
    """Return the piece of a span that a run is. Raise InvalidItem."""
    if not isinstance(run, dict):
        raise InvalidItem("run: expected an object")
    order = _order(run.get("dotted_order"))
    # A patch that was in the path of its request may have no id.
    id_ = uuid_of(run.get("id") or (order[-1][1] if order else None), "id")
    parent = run.get("parent_run_id") or (order[-2][1] if len(order) > 1 else None)
    parent_id = uuid_of(parent, "parent_run_id") if parent else None
    # A run without its trace is the root of one, or, as far as can be known, the child of a root.
    trace_id = uuid_of(run.get("trace_id") or (order[0][1] if order else str(parent_id or id_)), "trace_id")
    extra = fields(run.get("extra"))
    error = text(run.get("error"))
    end = nanoseconds(run.get("end_time"))
    return Span(
        trace_id=trace_id.hex,
        span_id=span_id(id_.hex),
        parent_id=span_id(parent_id.hex) if parent_id is not None else "",
        name=text(run.get("name")) or "",
        kind=1,
        start=nanoseconds(run.get("start_time")) or (order[-1][0] if order else 0),
        end=end,
        status="error" if error else "ok" if end else "",
        status_message=error or "",
        attributes=_attributes(run, extra) | {"langsmith.run.id": str(id_), "langsmith.run.trace_id": str(trace_id)},
        events=[
            SpanEvent(
                name=text(event.get("name")) or "", time=nanoseconds(event.get("time")), attributes=_others(event)
            )
            for event in items(run.get("events"))
            if isinstance(event, dict)
        ],
        scope=Scope(name="langsmith", version=text(fields(extra.get("runtime")).get("sdk_version")) or ""),
        # Patches may have come before the post; the one with the end has the last word.
        revision=0 if operation == "post" else 2 if end else 1,
    )


def _order(value: Any) -> list[tuple[int, str]]:
    """Return the start and the id of each run from the root to this one; [] if it is not a dotted order."""
    found = []
    for segment in value.split(".") if isinstance(value, str) and value else ():
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            return []
        try:
            start = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(microsecond=int(match[2]), tzinfo=UTC)
        except ValueError:
            return []
        found.append((nanoseconds(start.isoformat()), match[3]))
    return found


def _attributes(run: dict[str, Any], extra: dict[str, Any]) -> Attributes:
    found: Attributes = {f"langsmith.run.{name}": value for name, value in run.items() if name not in _TAKEN}
    if run.get("parent_run_id"):
        found["langsmith.run.parent_run_id"] = run["parent_run_id"]
    found |= {f"langsmith.metadata.{name}": value for name, value in fields(extra.get("metadata")).items()}
    found |= {f"langsmith.run.extra.{name}": value for name, value in extra.items() if name != "metadata"}
    found |= {"langsmith.span.kind": run.get("run_type"), "langsmith.span.tags": run.get("tags")}
    return {name: value for name, value in found.items() if value is not None}


def _others(event: dict[str, Any]) -> Attributes:
    return {name: value for name, value in event.items() if name not in ("name", "time") and value is not None}


# --- Feedback ---------------------------------------------------------------------------------------------------------


def _add_feedback(found: Decoded, value: Any, where: str) -> None:
    try:
        found.feedback.append(_feedback(value))
    except InvalidItem as error:
        found.errors.append(f"{where}: {error}")


def _feedback(value: Any) -> records.Score:
    if not isinstance(value, dict):
        raise InvalidItem("expected an object")
    return langsmith_feedback(value)


def refused(errors: Sequence[str], most: int = 10) -> list[str]:
    """Return the first errors, and the number of the others."""
    return [*errors[:most], *([f"and {len(errors) - most} more"] if len(errors) > most else [])]
