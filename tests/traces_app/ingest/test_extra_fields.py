"""Fields of our own responses that come back do not become metadata."""

from __future__ import annotations

from typing import Any

import pytest

from messages_app.http.schemas import Resource, Session
from traces_app.queries.schemas import calls as call_schemas
from traces_app.queries.schemas import messages as message_schemas
from traces_app.queries.schemas import sessions as session_schemas
from tracesite_sdk import records
from tracesite_sdk.normalize.extra_fields import move_extra_fields_to_metadata

# Not SessionWithSent: its `sent` is the outcome of one request, and a name that producers may use for data of their own.
ANSWERS: list[tuple[type[Resource], type[records.Record]]] = [
    (Session, records.Session),
    (session_schemas.SessionExport, records.Session),
    (session_schemas.SessionWithContexts, records.Session),
    (message_schemas.Message, records.Message),
    (message_schemas.Reference, records.Reference),
    (message_schemas.AgentStep, records.AgentStep),
    (call_schemas.ToolCall, records.ToolCall),
]


@pytest.mark.parametrize(("answer", "record"), ANSWERS, ids=lambda type_: type_.__name__)
def test_every_field_of_an_answer_is_taken_or_dropped(answer: type[Resource], record: type[records.Record]) -> None:
    document: dict[str, Any] = {**dict.fromkeys(answer.__struct_fields__, "sent"), "metadata": {}}
    move_extra_fields_to_metadata(document, record)
    assert document["metadata"] == {}, (
        f"A client that sends {answer.__name__} back would find these fields in its metadata. Add them to DERIVED in "
        f"sdk/tracesite_sdk/normalize/extra_fields.py, or to {record.__name__} in sdk/tracesite_sdk/records/__init__.py if it may set them."
    )


def test_every_field_of_an_answered_result_is_taken() -> None:
    assert set(call_schemas.ToolResult.__struct_fields__) <= set(records.ToolResult.__struct_fields__)
