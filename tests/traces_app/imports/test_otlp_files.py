"""Parts of a trace from files and over the wire: OTLP, and runs of LangSmith."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message
from sdk.tests.spans.langsmith_wire import PATCHES, POSTS
from sdk.tests.spans.otlp_wire import request_of, wire_span
from traces_app.imports.importer import import_paths
from traces_app.models import Span as SpanRow
from traces_app.models import ToolCall


@pytest.mark.django_db
def test_file_and_wire_make_one_trace(tmp_path: Path) -> None:
    project = Project.objects.create(slug="otlp")
    root = {**wire_span(2), "name": "invoke_agent planner", "status": {}, "attributes": []}
    child = wire_span(1, parent=f"{2:016x}")
    key = create_key(project, "agent", ["read", "write"])[1]
    body = json.dumps(request_of(root))
    headers = {"Authorization": f"Bearer {key}"}
    assert Client().post("/v1/traces", body, content_type="application/json", headers=headers).status_code == 200
    file = tmp_path / "spans.jsonl"
    file.write_text(json.dumps(request_of(child)) + "\n" + body)
    # The root alone makes no message.
    for state in ("created", "unchanged"):
        [report] = import_paths(primary, [file], project.pk)
        assert (report.status, report.format, report.reason, report.left_out) == ("read", "otlp", "", [])
        assert (dict(report.stored), report.counts.sessions) == ({state: Message.objects.count()}, 1)
    assert (SpanRow.objects.count(), ToolCall.objects.get().tool.name) == (2, "get_weather")


@pytest.mark.django_db
def test_posts_over_the_wire_and_patches_in_a_file_make_one_trace(tmp_path: Path) -> None:
    project = Project.objects.create(slug="langsmith")
    key = create_key(project, "agent", ["read", "write"])[1]
    posts = json.dumps({"post": POSTS})
    headers = {"x-api-key": key}
    assert Client().post("/runs/batch", posts, content_type="application/json", headers=headers).status_code == 202
    file = tmp_path / "patches.json"
    file.write_text(json.dumps({"patch": PATCHES}))
    for state in ("updated", "unchanged"):
        [report] = import_paths(primary, [file], project.pk)
        assert (report.status, report.format, report.left_out) == ("read", "langsmith", [])
        assert set(report.stored) == {state}
    assert (SpanRow.objects.count(), ToolCall.objects.get().status) == (6, "error")
