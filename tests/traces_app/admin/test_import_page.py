"""The upload of transcripts in the admin."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.http import HttpResponse
from django.test import Client

from access_app.models import AuditEntry, Project, Role
from access_app.roles import grant_role
from messages_app.models import Session
from tests.admin_pages import html_of, links_of, text_of
from traces_app.admin.import_sources import ORIGINS
from tracesite_sdk.formats.registry import FORMATS

SESSIONS = "/admin/messages_app/session/"
IMPORT = f"{SESSIONS}import/"
TALK = json.dumps([{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "31 °C."}]).encode()


def upload(client: Client, *files: tuple[str, bytes], project: str = "owner", **fields: Any) -> HttpResponse:
    data = {"project": project, "file": [ContentFile(content, name) for name, content in files], **fields}
    sent: Any = client.post(IMPORT, data)
    return sent


def text_with_status(response: HttpResponse, status: int) -> str:
    assert response.status_code == status
    response.status_code = 200
    return text_of(response)


def test_each_file_is_reported_and_leads_to_its_sessions(staff: Client, project: Project) -> None:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("other.json", TALK.replace(b"Weather", b"Wind"))
    page = upload(staff, ("talk.json", TALK), ("runs.zip", packed.getvalue()), ("<b>notes.txt", b"{nothing"))
    links = links_of(page)
    text = text_of(page)
    for session in Session.objects.all():
        assert links[session.title] == f"{SESSIONS}{session.pk}/change/"
    assert {session.title for session in Session.objects.all()} == {"Weather?", "Wind?"}
    assert "Imported 2 sessions · 4 messages · 1 file failed." in text
    assert text.index("<b>notes.txt failed") < text.index("talk.json OpenAI · 2 messages · 2 created")
    entry = AuditEntry.objects.get(action="import")
    assert (entry.object_type, entry.project_id, entry.detail["count"]) == ("session", project.pk, 2)
    assert "talk.json OpenAI · 2 messages · 2 unchanged" in text_of(upload(staff, ("talk.json", TALK)))


def test_check_reports_the_files_and_stores_nothing(staff: Client, project: Project) -> None:
    page = upload(staff, ("talk.json", TALK), dry_run="true")
    text = text_of(page)
    assert "Checked, not imported 1 session · 2 messages. Nothing was stored." in text
    assert "talk.json OpenAI · 2 messages" in text and "created" not in text
    assert not Session.objects.exists()


def test_every_format_is_listed_with_its_origin(staff: Client, project: Project) -> None:
    listed = [name for _title, origins in ORIGINS for origin in origins for name in origin.formats]
    assert sorted(listed) == sorted(one.NAME for one in FORMATS)
    assert "Claude Code ~/.claude/projects/ Codex CLI ~/.codex/sessions/" in text_of(staff.get(IMPORT))


def test_sessions_lead_to_the_form(staff: Client, project: Project) -> None:
    assert links_of(staff.get(SESSIONS))["Import"] == IMPORT
    assert '<option value="owner"' in html_of(staff.get(IMPORT))


def test_refused_uploads_have_the_status_of_rest_and_store_nothing(
    staff: Client, project: Project, settings: Any
) -> None:
    assert "No transcript was found. notes.txt: " in text_with_status(upload(staff, ("notes.txt", b"nothing")), 400)
    assert "The form has no file." in text_with_status(upload(staff), 400)
    assert "“nowhere” does not exist" in text_with_status(upload(staff, ("a.json", TALK), project="nowhere"), 404)
    broken: Any = staff.post(IMPORT, b"--x", content_type="multipart/form-data; boundary=" + "y" * 300)
    assert "Invalid form data" in text_with_status(broken, 400)
    many = [(f"{number}.json", TALK) for number in range(101)]
    assert "Invalid form data" in text_with_status(upload(staff, *many), 400)
    settings.TRACESITE_MAX_BODY_BYTES = 1000
    assert "larger than 1000 bytes" in text_with_status(upload(staff, ("a.json", TALK + b" " * 1000)), 413)
    assert not Session.objects.exists()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
def test_only_who_may_write_imports(role: Role, project: Project, stranger: Project) -> None:
    user = User.objects.create(username="bob", is_staff=True)
    grant_role(project, user, role)
    grant_role(stranger, user, Role.VIEWER)
    client = Client()
    client.force_login(user)
    is_editor = role == Role.EDITOR
    assert ("Import" in links_of(client.get(SESSIONS))) == is_editor
    assert client.get(IMPORT).status_code == (200 if is_editor else 403)
    assert upload(client, ("a.json", TALK), project="stranger").status_code == (404 if is_editor else 403)
    assert not Session.objects.exists()
    assert upload(client, ("a.json", TALK)).status_code == (200 if is_editor else 403)
    assert Session.objects.count() == is_editor


def test_upload_without_the_token_of_the_form_is_refused(project: Project) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada"))
    assert upload(client, ("a.json", TALK)).status_code == 403
    client.get(IMPORT)
    token = client.cookies["csrftoken"].value
    assert upload(client, ("a.json", TALK), csrfmiddlewaretoken="x" * 32).status_code == 403
    assert not Session.objects.exists()
    assert upload(client, ("a.json", TALK), csrfmiddlewaretoken=token).status_code == 200
    assert Session.objects.count() == 1
