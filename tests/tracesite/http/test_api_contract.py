"""Test the OpenAPI document with generated requests, valid and invalid: responses match it and are never 5xx.

`make test` sends a few requests of each kind to each operation, `make fuzz` many. They are the same in every run.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Any

import pytest
import schemathesis
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
)

from access_app.db import primary
from access_app.db.base import DatabaseWrapper
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Session
from tests.traces_app.conftest import answer, question, store
from traces_app.events.store import record_events
from traces_app.ingest.scores import PlacedScore, ScoreTarget, store_scores
from traces_app.ingest.snapshots import store_snapshots
from traces_app.models import Context, ToolCall
from tracesite.http.api_root import schema
from tracesite.wsgi import application
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event, redact_score, redact_snapshots
from tracesite_sdk.records.snapshot_parts import ref_of
from tracesite_sdk.redaction.rules import DEFAULT_RULES

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "3"))
CHECKS = [content_type_conformance, response_headers_conformance]


def operations(document: dict[str, Any]) -> dict[str, Any]:
    contract = schemathesis.openapi.from_dict(document)
    contract.app = application
    return {found.ok().label: found.ok() for found in contract.get_all_operations()}


def with_fields_left_out(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without required response fields, because `fields` and `expand` can omit any."""
    document = deepcopy(document)
    for name, component in document["components"]["schemas"].items():
        if not name.endswith("Input"):
            component.pop("required", None)
    return document


OPERATIONS = operations(schema())
LEFT_OUT = operations(with_fields_left_out(schema()))

as_often_as_said = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the test's connection open: a WSGI request would close it because it is in a transaction."""
    monkeypatch.setattr(DatabaseWrapper, "close_if_unusable_or_obsolete", lambda connection: None)


@pytest.fixture
def key(project: Project) -> str:
    return f"Bearer {create_key(project, 'agent', ['read', 'write', 'delete'])[1]}"


@pytest.fixture
def names(project: Project) -> dict[str, str]:
    """Return existing values of the path parameters."""
    message = str(store(project, question(), answer()).messages[1].id)
    call = str(ToolCall.objects.filter(message_id=message).values_list("pk", flat=True)[0])
    request_data = {"conversation": [{"role": "user"}, "Hello"], "variables": {"city": "Shanghai"}}
    event = records.Event(session_id="weather", type="llm_request_start", data=request_data)
    record_events(primary, project.pk, [redact_event(event, DEFAULT_RULES)])
    ref = Context.objects.get(kind="context").ref
    judged = redact_score(records.Score(name="helpful", value=1), DEFAULT_RULES)
    session_id = Session.objects.get().pk
    [score] = store_scores(
        primary, project.pk, [PlacedScore(redacted=judged, place=ScoreTarget(session_id=session_id))]
    )
    part = ref_of(b"{}")
    snapshot = records.Snapshot(id="snapshot", ts=10**18, node_ids=["plan"], context_ref=part)
    sent = records.Snapshots(session_id="weather", snapshot=snapshot, parts={part: Raw(b"{}")})
    store_snapshots(primary, project.pk, redact_snapshots(sent, DEFAULT_RULES))
    ids = {
        "entry_id": "1",  # of the audit log, which keys do not read
        "snapshot_id": "snapshot",
        "message_id": message,
        "chain_id": message,
        "call_id": call,
        "score_id": str(score),
    }
    return {"session_id": "weather", **ids, "ref": ref}


def check(case: Case, headers: dict[str, str], *, statuses: range) -> int:
    response = case.call(headers={"Accept-Encoding": "identity", **headers})
    documented = case.operation.definition.raw["responses"]
    assert response.status_code in statuses, response.text
    assert str(response.status_code) in documented, response.text
    case.validate_response(response, checks=CHECKS)
    chosen = case.query and ("fields" in case.query or "expand" in case.query)
    (LEFT_OUT if chosen else OPERATIONS)[case.operation.label].validate_response(response, case=case)
    return response.status_code


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("label", OPERATIONS)
def test_generated_request_gets_documented_response(
    label: str, mode: GenerationMode, key: str, names: dict[str, str]
) -> None:
    operation = OPERATIONS[label]

    @as_often_as_said
    @given(case=operation.as_strategy(generation_mode=mode), of_what_is_there=st.booleans())
    def requests(case: Case, of_what_is_there: bool) -> None:
        if of_what_is_there:
            case.path_parameters.update({name: names[name] for name in case.path_parameters})
        with transaction.atomic():
            check(case, {"Authorization": key}, statuses=range(200, 500))
            transaction.set_rollback(True)

    requests()


@pytest.mark.parametrize("label", OPERATIONS)
def test_request_without_key_gets_401(label: str, db: None) -> None:
    @as_often_as_said
    @given(case=OPERATIONS[label].as_strategy())
    def requests(case: Case) -> None:
        check(case, {}, statuses=range(401, 402))

    requests()
