"""The conversation of sdk/tests/conversations through real ways in, and the same tokens and cost through every way out."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from access_app.models import Project
from sdk.tests.conversations.conversation import (
    PAUSED,
    PRICES,
    WHOLE,
    Conversation,
    MessageRow,
    SessionRow,
    expected_rows,
    rows_of,
)
from sdk.tests.conversations.files import FILE_FORMS, as_bytes, claude_code, imported, langchain
from sdk.tests.conversations.own import EVENT_FORMS, OWN_FORMS, eko, own_events, own_export
from sdk.tests.conversations.spans import (
    GENAI,
    SPAN_FORMS,
    langfuse_ingestion,
    langsmith_batch,
    openai_agents_items,
    otlp,
)
from tests.traces_app.views.conftest import Caller, owner
from traces_app.ingest.prices import forget_prices
from traces_app.models import ModelPrice

__all__ = ["owner"]
pytestmark = pytest.mark.django_db
FORMS = {form.name: form for form in (*FILE_FORMS, *SPAN_FORMS, *OWN_FORMS, *EVENT_FORMS)}
BYTES = "application/octet-stream"
WAYS_IN: dict[str, tuple[str, Callable[[Conversation], Any], str]] = {
    "claude_code": ("/api/v1/import/", claude_code, BYTES),
    "langchain": ("/api/v1/import/", langchain, BYTES),
    "genai spans": ("/v1/traces", lambda conversation: otlp(conversation, GENAI), "application/json"),
    "Langfuse ingestion": ("/api/public/ingestion", langfuse_ingestion, "application/json"),
    "LangSmith runs": ("/runs/batch", langsmith_batch, "application/json"),
    "OpenAI Agents SDK": ("/v1/traces/ingest", openai_agents_items, "application/json"),
    "own_export": ("/api/v1/ingest/", lambda conversation: {"sessions": [own_export(conversation)]}, "application/json"),
    "events": ("/api/v1/events/", own_events, "application/json"),
    "callbacks of Eko": ("/api/v1/eko/callbacks/", lambda conversation: {"messages": eko(conversation)}, "application/json"),
}  # fmt: skip
"""The address, what is written, and its media type."""


@pytest.fixture(autouse=True)
def prices(project: Project) -> None:
    ModelPrice.objects.all().delete()
    for model, (new, cached, output) in PRICES.items():
        ModelPrice.objects.create(model=model, input=new, cached_input=cached, output=output, as_of=date(2026, 1, 1))
    forget_prices()


def send(client: Client, way: str, conversation: Conversation) -> None:
    address, write, media_type = WAYS_IN[way]
    written = write(conversation)
    body = written if isinstance(written, bytes) else as_bytes(written)
    response = client.post(address, body, content_type=media_type)
    assert response.status_code in (200, 201, 202, 207), response.content


def stored_rows(owner: Caller) -> SessionRow:
    """Return the rows of the only session, read from its export."""
    (session,) = owner.get("sessions/").results
    rows = rows_of(imported("own_export", owner.get(f"sessions/{session['id']}/export/").body), now=datetime.now(UTC))
    return rows._replace(status=session["status"])


@pytest.mark.parametrize("way", WAYS_IN)
def test_conversation_grows_from_its_pause_to_its_end(owner: Caller, way: str) -> None:
    for conversation in (PAUSED, WHOLE, WHOLE):
        send(owner.client, way, conversation)
        assert stored_rows(owner) == expected_rows(FORMS[way], conversation)


Figures = tuple[int, int, Decimal | None, int]


def figures(row: dict[str, Any]) -> Figures:
    """Return tokens, cost and the number of requests without a price, of JSON or of a row of CSV."""
    cost = None if row["cost"] in (None, "") else Decimal(str(row["cost"])).quantize(Decimal("1e-10"))
    used = row.get("resources", row)
    return int(used["input_tokens"]), int(used["output_tokens"]), cost, int(row["unpriced_count"])


def figures_of(row: MessageRow) -> Figures:
    return row.input_tokens, row.output_tokens, row.cost, row.unpriced_count


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_way_out_has_the_same_tokens_and_cost(owner: Caller, staff: Client, way: str) -> None:
    send(owner.client, way, WHOLE)
    (session,) = owner.get("sessions/").results
    answer, *_question = owner.get("messages/", role="assistant").results
    usage = owner.get("usage/").json
    (of_session,) = exported(staff, "session")
    (of_answer,) = [row for row in exported(staff, "message") if row["role"] == "assistant"]
    expected = expected_rows(FORMS[way], WHOLE).messages[-1]
    given = figures_of(expected)
    assert [figures(row) for row in (session, answer, usage["total"], of_session, of_answer)] == [given] * 5
    assert {row["key"] for row in usage["results"]} == {step.model or "" for step in expected.steps}


def exported(staff: Client, model: str) -> list[dict[str, Any]]:
    content = staff.get(f"/admin/messages_app/{model}/export/csv/").content
    return [*csv.DictReader(content.decode("utf-8-sig").splitlines())]
