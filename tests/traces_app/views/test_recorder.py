"""/recorder/: the settings of a project for its recorders."""

from __future__ import annotations

from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from tracesite_sdk.recorder.delivery.sinks import ServerSampling, ServerSettings

URL = "/api/v1/recorder/"


def ask(client: Client, project: Project, *scopes: str) -> Any:
    token = create_key(project, "agent", scopes or ["write"])[1]
    return client.get(URL, headers={"X-API-Key": token})


def test_project_without_settings_returns_null(client: Client, project: Project) -> None:
    answer = ask(client, project)
    assert (answer.status_code, answer.json()) == (200, {"sampling": None})
    assert msgspec.json.decode(answer.content, type=ServerSettings) == ServerSettings()
    assert "no-store" in answer.headers["Cache-Control"]


def test_recorder_settings_are_returned_as_sampling_reads_them(client: Client, project: Project) -> None:
    token = create_key(project, "agent", ["write"])[1]
    for rate in (0.5, 0, 1):
        project.sampling_rate, project.sampling_tools = rate, {"search": 0.1}
        project.sampling_keep_slower_than_ms = 2000
        project.save()
        answer = client.get(URL, headers={"X-API-Key": token})
        assert msgspec.json.decode(answer.content, type=ServerSettings) == ServerSettings(
            sampling=ServerSampling(rate=rate, tools={"search": 0.1}, keep_errors=True, keep_slower_than_ms=2000)
        )


def test_each_setting_alone_is_returned(project: Project) -> None:
    for field, value in (
        ("sampling_rate", 1.0),
        ("sampling_tools", {"a": 1}),
        ("sampling_keep_errors", False),
        ("sampling_keep_slower_than_ms", 0),
    ):
        assert Project(slug="x", **{field: value}).sampling() is not None
    assert Project(slug="x").sampling() is None


def test_recorder_settings_require_key_and_scope(client: Client, project: Project) -> None:
    answer = client.get(URL)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "not_authenticated")
    answer = ask(client, project, "read")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "missing_scope")
    assert ask(client, project, "write").status_code == 200


def test_key_reads_settings_of_its_own_project_only(client: Client, project: Project, stranger: Project) -> None:
    stranger.sampling_rate = 0.5
    stranger.save()
    assert ask(client, project).json() == {"sampling": None}
    token = create_key(project, "agent", ["write"])[1]
    answer = client.get(URL, {"project": stranger.slug}, headers={"X-API-Key": token})
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "project")


def test_superuser_reads_settings_of_a_named_project(client: Client, project: Project, stranger: Project) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    assert client.get(URL).json()["error"]["field"] == "project"
    assert client.get(URL, {"project": project.slug}).json() == {"sampling": None}
    assert client.get(URL, {"odd": "1"}).status_code == 400
