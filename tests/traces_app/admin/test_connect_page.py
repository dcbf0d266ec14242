"""How to connect an agent, on the first page and on a page of its own."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.db import primary
from access_app.keys import digest_of
from access_app.models import ApiKey, AuditEntry, Project, Role
from access_app.roles import grant_role
from sdk.tests.paths import ROOT
from tests.admin_pages import html_of, links_of, text_of
from tests.traces_app.conftest import answer, store
from traces_app.admin.connect_page import NO_KEY, WAYS
from traces_app.ingest.decode import decode_ingest
from traces_app.ingest.pipeline import ingest

HOME, SESSIONS = "/admin/", "/admin/messages_app/session/"
CONNECT, ARRIVED = f"{SESSIONS}connect/", f"{SESSIONS}arrived/"


def commands_of(html: str) -> dict[str, str]:
    """Return what the page gives to copy, by the way."""
    found = re.findall(r'<pre id="commands-([\w-]+)" tabindex="0">(.*?)</pre>', html, re.S)
    return {name: unescape(re.sub(r"</?mark>", "", text)) for name, text in found}


def member(role: Role, project: Project) -> Client:
    user = User.objects.create(username=str(role), is_staff=True)
    grant_role(project, user, role)
    client = Client()
    client.force_login(user)
    return client


def test_one_click_makes_a_key_that_all_commands_have(staff: Client, project: Project) -> None:
    html = html_of(staff.get(HOME))
    assert all(NO_KEY in commands for commands in commands_of(html).values())
    made = html_of(staff.post(CONNECT, {"project": project.slug}))
    key = ApiKey.objects.get()
    assert (key.project, key.scopes) == (project, ["read", "write"])
    (token,) = set(re.findall(r"ts_[\w-]{20,}", made))
    assert key.digest == digest_of(token)
    assert all(token in commands and NO_KEY not in commands for commands in commands_of(made).values())
    assert [entry.action for entry in AuditEntry.objects.filter(object_id=str(key.pk))] == ["key_create"]
    assert token not in html_of(staff.get(CONNECT))


def test_request_of_the_page_is_valid_and_its_run_is_found(staff: Client, project: Project) -> None:
    assert staff.get(ARRIVED).json() == {"arrived": False, "newest": None}
    assert links_of(staff.get(HOME))["Look again"] == f"{CONNECT}?open"
    assert "Waiting for the first trace" in text_of(staff.get(f"{CONNECT}?open"))
    body = json.loads(commands_of(html_of(staff.get(HOME)))["rest"].partition("-d '")[2].removesuffix("'"))
    (stored,) = ingest(primary, project.pk, decode_ingest(json.dumps(body).encode(), ndjson=False), source="live")
    assert staff.get(ARRIVED).json() == {"arrived": True, "newest": str(stored.messages[1].id)}
    found = staff.get(f"{CONNECT}?open")
    assert found["Location"] == f"/admin/messages_app/message/{stored.messages[1].id}/change/"
    assert "Waiting for the first trace" not in text_of(staff.get(CONNECT))


def test_trace_of_a_strange_project_has_not_arrived(project: Project, stranger: Project) -> None:
    client = member(Role.VIEWER, project)
    store(stranger, answer())
    assert client.get(ARRIVED).json() == {"arrived": False, "newest": None}
    assert client.get(ARRIVED, {"project": "stranger"}).json() == {"arrived": False, "newest": None}
    assert client.get(CONNECT, {"open": ""}).status_code == 200


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.EDITOR, 403), (Role.OWNER, 200)])
def test_only_owners_make_keys(role: Role, status: int, project: Project, stranger: Project) -> None:
    client = member(role, project)
    page = text_of(client.get(HOME))
    assert ("Ask an owner of the project for an API key" in page) == (role != Role.OWNER)
    assert client.post(CONNECT, {"project": project.slug}).status_code == status
    for slug in ("stranger", "", "a\x00"):
        assert client.post(CONNECT, {"project": slug}).status_code == (302 if role == Role.OWNER else 403)
    assert ApiKey.objects.count() == (role == Role.OWNER)


def test_commands_are_those_of_the_docs() -> None:
    text = (ROOT / "docs" / "first_hour.md").read_text()
    for way in WAYS:
        lines = [f"    {line}".rstrip() for line in way.commands.rstrip().split("\n")]
        assert "\n".join(lines) in text, f"Copy the commands of {way.title} into docs/first_hour.md."
    _install, _line, script = WAYS[0].commands.partition("\n")
    assert script in re.sub("^    ", "", (ROOT / "README.md").read_text(), flags=re.M), (
        "Those of the README are tested."
    )
