"""Langfuse's uploads of media: announced, sent to a signed URL, and put where the spans refer to them."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from hashlib import sha256
from itertools import permutations
from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.models import Span as SpanRow
from traces_app.models import ToolResult
from traces_app.queries.contexts import inputs
from traces_app.spans import stored as span_store
from traces_app.spans.deliveries import has_media, record_media, record_spans
from tracesite.foreign_apis.langfuse.media import MAX_MEDIA_BYTES
from tracesite_sdk.spans.media import MOST_BASE64_PUT_IN, media_id_of, media_of, with_media
from tracesite_sdk.spans.span import Span

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
HASH = sha256(PNG).digest()
MEDIA_ID = media_id_of(HASH)
REFERENCE = f"@@@langfuseMedia:type=image/png|id={MEDIA_ID}|source=base64_data_uri@@@"
TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_790_000_000_000_000_000

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return Project.objects.create(slug="wires")


@pytest.fixture
def client(project: Project) -> Client:
    key = create_key(project, "agent", ["write"])[1]
    return Client(headers={"Authorization": f"Basic {b64encode(f'pk:{key}'.encode()).decode()}"})


def announce(client: Client, **changes: Any) -> tuple[int, dict[str, Any]]:
    body = {
        "traceId": TRACE,
        "observationId": "b" * 16,
        "field": "input",
        "contentType": "image/png",
        "contentLength": len(PNG),
        "sha256Hash": b64encode(HASH).decode(),
    }
    response = client.post("/api/public/media", json.dumps(body | changes), content_type="application/json")
    return response.status_code, json.loads(response.content)


def upload(url: str, content: bytes = PNG, content_type: str = "image/png") -> int:
    # SDKs send no key here.
    return Client().put(url, content, content_type=content_type).status_code


def spans() -> list[Span]:
    def span(number: int, parent: int, **attributes: Any) -> Span:
        named = {f"langfuse.observation.{name}": value for name, value in attributes.items()}
        return Span(
            trace_id=TRACE,
            span_id=f"{number:016x}",
            parent_id=f"{parent:016x}" if parent else "",
            name="chart" if attributes["type"] == "tool" else "chat",
            start=START + number,
            end=START + 10**9,
            attributes=named,
        )

    asked = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": REFERENCE}}]}]
    return [
        span(1, 0, type="agent"),
        span(2, 1, type="generation", input=json.dumps(asked), output='{"role": "assistant", "content": "A chart."}'),
        span(3, 1, type="tool", input="{}", output=json.dumps({"image": REFERENCE})),
    ]


def assert_media_is_there() -> None:
    message = Message.objects.get(role="assistant")
    step = message.steps.exclude(input_ref="").get()
    key = (str(message.pk), step.input_ref)
    [asked] = json.loads(b"[" + bytes(inputs(primary, [key])[key].messages[0]) + b"]")
    data = b64encode(PNG).decode()
    assert asked["content"][0]["image_url"]["url"] == f"data:image/png;base64,{data}"
    assert ToolResult.objects.get().attachments == [{"type": "image", "media_type": "image/png", "data": data}]


def test_media_is_attached_whatever_comes_first(client: Client, project: Project) -> None:
    record_spans(primary, project.pk, spans())
    status, ticket = announce(client)
    assert (status, ticket["mediaId"]) == (200, MEDIA_ID)
    assert upload(ticket["uploadUrl"]) == 200
    assert_media_is_there()
    assert announce(client) == (200, {"mediaId": MEDIA_ID, "uploadUrl": None})
    assert upload(ticket["uploadUrl"]) == 200
    report = {"uploadedAt": "2026-11-20T10:00:00Z", "uploadHttpStatus": 200}
    response = client.patch(f"/api/public/media/{MEDIA_ID}", json.dumps(report), content_type="application/json")
    assert response.status_code == 204
    assert_media_is_there()


def test_media_and_spans_in_any_order_give_the_same_rows() -> None:
    for number, order in enumerate(permutations([*spans(), media_of(TRACE, "image/png", PNG, HASH)])):
        # Purged traces are refused in their project.
        project = Project.objects.create(slug=f"order-{number}")
        for delivery in order:
            if isinstance(delivery, Span):
                record_spans(primary, project.pk, [delivery])
            else:
                assert record_media(primary, project.pk, delivery) is None
        assert_media_is_there()
        purge(primary, PurgeScope(created_before=Message.objects.latest("created_at").created_at.replace(year=2100)))
        assert SpanRow.objects.count() == 0


def test_media_goes_with_its_trace(client: Client, project: Project) -> None:
    record_spans(primary, project.pk, spans())
    upload(announce(client)[1]["uploadUrl"])
    assert has_media(primary, project.pk, TRACE, MEDIA_ID)
    purge(primary, PurgeScope(created_before=Message.objects.latest("created_at").created_at.replace(year=2100)))
    assert not has_media(primary, project.pk, TRACE, MEDIA_ID)


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"sha256Hash": "x"}, 400, "sha256Hash"),
        ({"sha256Hash": b64encode(b"short").decode()}, 400, "sha256Hash"),
        ({"traceId": None}, 400, "traceId"),
        ({"contentType": "text/html; charset=utf-8"}, 400, "contentType"),
        ({"contentType": 7}, 400, "contentType"),
        ({"contentLength": 0}, 413, "contentLength"),
        ({"contentLength": MAX_MEDIA_BYTES + 1}, 413, "contentLength"),
    ],
)
def test_impossible_media_are_refused(client: Client, changes: dict[str, Any], status: int, field: str) -> None:
    found, error = announce(client, **changes)
    assert (found, field in json.dumps(error)) == (status, True)


def test_upload_of_other_content_or_url_is_refused(client: Client) -> None:
    url = announce(client)[1]["uploadUrl"]
    assert upload(url, PNG[:-1] + b"x") == 400
    assert upload(url, PNG[:-1]) == 400
    assert upload(url, PNG + b"x") == 413
    assert upload(url, PNG, "image/jpeg") == 415
    assert upload(f"{url}x") == 403
    assert SpanRow.objects.count() == 0
    assert Client().post("/api/public/media", "{}", content_type="application/json").status_code == 401


def test_references_are_replaced_by_urls_or_bare_base64() -> None:
    (filled,), left_out = with_media(
        [
            Span(
                trace_id=TRACE,
                span_id="1" * 16,
                attributes={
                    "text": f"See {REFERENCE}!",
                    "json": json.dumps({"type": "base64", "data": REFERENCE}),
                    "twice": json.dumps(json.dumps({"data": REFERENCE})),
                    "nested": [{"x": REFERENCE}, 7],
                    "other": REFERENCE.replace(MEDIA_ID, "unknown"),
                },
            )
        ],
        [media_of(TRACE, "image/png", PNG, HASH)],
    )
    data = b64encode(PNG).decode()
    assert left_out == set()
    assert filled.attributes == {
        "text": f"See data:image/png;base64,{data}!",
        "json": json.dumps({"type": "base64", "data": data}),
        "twice": json.dumps(json.dumps({"data": data})),
        "nested": [{"x": f"data:image/png;base64,{data}"}, 7],
        "other": REFERENCE.replace(MEDIA_ID, "unknown"),
    }


@pytest.mark.parametrize("announced", [10, MAX_MEDIA_BYTES])
def test_file_larger_than_announced_is_refused_however_it_is_packed(client: Client, announced: int) -> None:
    content = bytes(30_000_000)
    about = {"contentLength": announced, "sha256Hash": b64encode(sha256(content).digest()).decode()}
    url = announce(client, **about)[1]["uploadUrl"]
    assert upload(url, content) == 413
    packed = gzip.compress(content)
    assert len(packed) < 31_000
    answer = Client().put(url, packed, content_type="image/png", headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, f"larger than {announced} bytes" in answer.content.decode()) == (413, True)
    assert SpanRow.objects.count() == 0


def test_file_sent_again_is_stored_once(client: Client, project: Project) -> None:
    url = announce(client)[1]["uploadUrl"]
    assert [upload(url), upload(url)] == [200, 200]
    assert SpanRow.objects.count() == 1
    assert has_media(primary, project.pk, TRACE, MEDIA_ID)
    assert not has_media(primary, project.pk, "f" * 32, MEDIA_ID)


def test_files_of_a_trace_beyond_the_limit_are_refused(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_store, "MOST_MEDIA_OF_TRACE", 5 * len(PNG))
    record_spans(primary, project.pk, spans())
    found = []
    for number in range(5):
        content = PNG + bytes([number])
        about = {"contentLength": len(content), "sha256Hash": b64encode(sha256(content).digest()).decode()}
        found.append(upload(announce(client, **about)[1]["uploadUrl"], content))
    # Base64 takes a third more.
    assert found == [200, 200, 200, 413, 413]
    assert SpanRow.objects.filter(kind="media").count() == 3
    # Spans are taken as before, and of what was stored before the limit only some is read.
    monkeypatch.setattr(span_store, "MOST_MEDIA_OF_TRACE", 0)
    assert record_spans(primary, project.pk, [Span(trace_id=TRACE, span_id="9" * 16, start=START)]).accepted == 1


@pytest.mark.parametrize("times", [20, 200])
def test_repeated_references_are_replaced_up_to_a_limit(client: Client, project: Project, times: int) -> None:
    content = bytes(range(256)) * 4096
    media_id = media_id_of(sha256(content).digest())
    about = {"contentLength": len(content), "sha256Hash": b64encode(sha256(content).digest()).decode()}
    assert upload(announce(client, **about)[1]["uploadUrl"], content) == 200
    reference = f"@@@langfuseMedia:type=image/png|id={media_id}|source=bytes@@@"
    agent, asked, tool = spans()
    asked.attributes["langfuse.observation.input"] = json.dumps(
        [{"role": "user", "content": " ".join([reference] * times)}]
    )
    record_spans(primary, project.pk, [agent, asked, tool])

    message = Message.objects.get(role="assistant")
    step = message.steps.exclude(input_ref="").get()
    written = bytes(
        inputs(primary, [(str(message.pk), step.input_ref)])[str(message.pk), step.input_ref].messages[0]
    ).decode()
    put_in = min(times, MOST_BASE64_PUT_IN // (4 * -(-len(content) // 3)))
    assert (written.count("base64,"), written.count(reference)) == (put_in, times - put_in)
    assert len(written) < MOST_BASE64_PUT_IN + 200 * times
    # It shows that something is missing.
    assert message.health == (["truncated"] if times > put_in else [])
