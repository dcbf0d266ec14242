"""Fields of our own responses that come back do not become metadata."""

from __future__ import annotations

import pytest

from messages_app.http.schemas import Resource
from traces_app.normalize.extra_fields import DERIVED, move_extra_fields_to_metadata
from traces_app.queries import schemas
from traces_app.schema import records

# Not SessionWithSent: its `sent` is the outcome of one request, and a name that producers may use for data of their own.
ANSWERS: list[tuple[type[Resource], type[records.Record]]] = [
    (schemas.Session, records.Session),
    (schemas.SessionExport, records.Session),
    (schemas.SessionWithContexts, records.Session),
    (schemas.Message, records.Message),
    (schemas.Reference, records.Reference),
    (schemas.AgentStep, records.AgentStep),
    (schemas.ToolCall, records.ToolCall),
    (schemas.ToolResult, records.ToolResult),
]


@pytest.mark.parametrize(("answer", "record"), ANSWERS, ids=lambda type_: type_.__name__)
def test_every_field_of_an_answer_is_taken_or_dropped(answer: type[Resource], record: type[records.Record]) -> None:
    unknown = sorted(set(answer.__struct_fields__).difference(record.__struct_fields__, DERIVED))
    assert unknown == [], (
        f"A client that sends {answer.__name__} back would find these fields in its metadata. Add them to DERIVED in "
        f"traces_app/normalize/extra_fields.py, or to {record.__name__} in traces_app/schema/records.py if it may set them."
    )


def test_derived_fields_are_dropped_and_others_kept() -> None:
    document = {"role": "user", "version": 3, "color": "red"}
    move_extra_fields_to_metadata(document, records.Message)
    assert document == {"role": "user", "metadata": {"color": "red"}}
