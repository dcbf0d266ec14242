"""/import/ over HTTP."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.test.client import encode_multipart

from access_app.models import Project
from messages_app.models import Message, Session
from traces_app.imports.importer import import_source
from traces_app.models import ToolCall
from traces_app.views import importing

from .conftest import Answer, Caller

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather in 上海?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "function": {"name": "get_weather", "arguments": '{"city": "上海"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "31 °C"},
    {"role": "assistant", "content": "It is 31 °C."},
]
COUNTS = {
    "sessions": 1,
    "messages": {"user": 1, "assistant": 1},
    "steps": 1,
    "tool_calls": {"get_weather": 1},
    "tool_results": 1,
    "errors": {},
    "calls_without_result": 0,
    "orphan_results": 0,
    "broken_arguments": 0,
    "health": {},
}
BYTES = json.dumps(TALK).encode()
ANYTHING = "application/octet-stream"


def form(caller: Caller, path: str = "import/", **values: Any) -> Answer:
    body = encode_multipart("limit", values)
    return caller.post(path, body, content_type="multipart/form-data; boundary=limit")


def file(data: bytes, name: str = "talk.json") -> ContentFile[bytes]:
    return ContentFile(data, name)


def tar_header(records: bytes) -> bytes:
    """Return a tar archive of one extended header."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    return info.tobuf() + records.ljust(512, b"\0") + bytes(1024)


def zipped(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_transcript_is_stored_and_reported_with_counts(owner: Caller, project: Project) -> None:
    sent = owner.post("import/", TALK)
    (session,) = Session.objects.all()
    assert (sent.status, sent.json) == (
        200,
        {
            "project": project.slug,
            "dry_run": False,
            "files": [
                {
                    "path": "body",
                    "status": "read",
                    "reason": "",
                    "format": "openai_chat",
                    "counts": COUNTS,
                    "left_out": [],
                    "left_out_count": 0,
                    "renamed": [],
                    "stored": {"created": 2},
                    "sessions": [{"id": str(session.id), "page": f"/admin/messages_app/session/{session.id}/change/"}],
                }
            ],
            "totals": COUNTS,
        },
    )
    assert (session.title, session.status, session.call_count) == ("Weather in 上海?", "completed", 1)
    again = owner.post("import/", TALK).json["files"][0]
    assert (again["stored"], again["sessions"]) == ({"unchanged": 2}, sent.json["files"][0]["sessions"])


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (BYTES, "application/json; charset=utf-8"),
        (b"\n".join(json.dumps(message).encode() for message in TALK), "application/x-ndjson"),
        (BYTES, ANYTHING),
        (gzip.compress(BYTES, mtime=0), ANYTHING),
        (gzip.compress(BYTES, mtime=0), "application/gzip"),
        (zipped(**{"a/talk.json": BYTES}), "application/zip"),
    ],
)
def test_upload_of_any_media_type_is_read(owner: Caller, body: bytes, media_type: str) -> None:
    sent = owner.post("import/", body, content_type=media_type)
    assert (sent.status, sent.json.get("totals")) == (200, COUNTS)
    assert ToolCall.objects.get().tool.name == "get_weather"


def test_upload_with_content_encoding_is_read(owner: Caller) -> None:
    sent = owner.post("import/", gzip.compress(BYTES), Content_Encoding="gzip")
    assert (sent.status, sent.json["totals"]) == (200, COUNTS)


def test_form_with_files_and_parameters_is_read(owner: Caller) -> None:
    archive = zipped(**{"b.json": BYTES, "notes.txt": b"notes"})
    sent = form(owner, file=[file(BYTES), file(archive, "more.zip")], format="openai_chat", dry_run="true")
    assert [(each["path"], each["status"], each["reason"]) for each in sent.json["files"]] == [
        ("talk.json", "read", ""),
        ("more.zip/b.json", "read", ""),
        ("more.zip/notes.txt", "skipped", "not JSON: no value begins at line 1, column 1"),
    ]
    assert sent.json["dry_run"] is True
    assert not Session.objects.exists()


def test_upload_leaves_no_temporary_files(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    form(owner, file=[file(BYTES), file(b"nonsense")])
    form(owner, file=file(b"nonsense"), format="none")
    owner.post("import/", zipped(a=gzip.compress(BYTES)), content_type=ANYTHING)
    assert list(tmp_path.iterdir()) == []


def test_upload_has_no_name_on_the_disk_while_it_is_read(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    seen: list[list[Path]] = []

    def watched(*args: Any, **options: Any) -> Any:
        for report in import_source(*args, **options):
            seen.append(list(tmp_path.iterdir()))
            yield report

    monkeypatch.setattr(importing, "import_source", watched)
    form(owner, file=[file(BYTES), file(gzip.compress(zipped(a=gzip.compress(BYTES))))])
    owner.post("import/", TALK)
    assert seen == [[]] * 3


def test_unknown_file_is_reported_and_others_stored(owner: Caller) -> None:
    sent = form(owner, file=[file(b"{", "a.json"), file(BYTES)])
    assert [(each["status"], each["reason"].partition(":")[0]) for each in sent.json["files"]] == [
        ("failed", "not JSON"),
        ("read", ""),
    ]
    assert Message.objects.count() == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b" \n", "body: the file is empty"),
        (b"{", "body: not JSON: "),
        (b'{"name": "a package"}', "body: not a transcript in a known format"),
        (gzip.compress(b'{"name": "a package"}', mtime=0), "body: not a transcript in a known format"),
        (gzip.compress(BYTES, mtime=0)[:-9], "body: the data is truncated"),
        (zipped(), "body: "),
        (
            gzip.compress(tar_header(b"0 a=b\n"), mtime=0),
            "body: the archive is broken: an extended header is unreadable",
        ),
        (zipped(a=b"notes"), "body/a: not JSON: "),
    ],
)
def test_upload_without_transcript_is_refused_with_reasons(owner: Caller, body: bytes, reason: str) -> None:
    sent = owner.post("import/", body, content_type=ANYTHING)
    assert sent.error == (400, "no_transcript", None)
    assert sent.json["error"]["message"].startswith(f"No transcript was found. {reason}")


def test_messages_of_unknown_roles_are_left_out_and_reported(owner: Caller) -> None:
    roles = ["developer", "user", "assistant", "tool", "critic"]
    sent = owner.post("import/", [{"role": role, "content": role} for role in roles])
    assert [message.role for message in Message.objects.order_by("id")] == ["system", "user", "assistant"]
    assert sent.json["files"][0]["left_out"] == [
        ["[4]", "unknown role 'critic'; a role is one of system, developer, user, assistant, tool, function"]
    ]
    sent = owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [{"role": "human", "content": "Hi"}]}]})
    assert sent.error == (400, "invalid_input", "sessions[0].messages[0].role")
    assert owner.post("import/", [{"role": "critic", "content": "Bad."}]).status == 400


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, (400, "invalid_input", "file")),
        ({"file": "a text"}, (400, "invalid_input", "file")),
        ({"other": file(BYTES)}, (400, "invalid_input", "other")),
        ({"file": file(BYTES), "dry_run": "maybe"}, (400, "invalid_input", "dry_run")),
        ({"file": file(BYTES), "format": "word"}, (400, "invalid_input", "format")),
        ({"file": file(BYTES), "colour": "red"}, (400, "invalid_input", "colour")),
        ({"file": file(BYTES), "format": ["auto", "auto"]}, (400, "invalid_input", "format")),
        ({"file": file(BYTES), "project": "nowhere"}, (404, "not_found", "project")),
    ],
)
def test_invalid_form_is_refused_with_the_field(
    owner: Caller, values: dict[str, Any], error: tuple[int, str, str]
) -> None:
    assert form(owner, **values).error == error
    assert not Session.objects.exists()


def test_malformed_form_is_refused(owner: Caller) -> None:
    for media_type in ("multipart/form-data", "multipart/form-data; boundary="):
        assert owner.post("import/", BYTES, content_type=media_type).error == (400, "invalid_form", None)


def test_parameter_in_both_query_and_form_is_refused(owner: Caller) -> None:
    assert owner.post("import/?dry_run=true", TALK).json["dry_run"] is True
    assert form(owner, "import/?dry_run=true", file=file(BYTES), dry_run="true").error == (
        400,
        "invalid_input",
        "dry_run",
    )
    assert owner.post("import/?format=inspect_ai", TALK).error == (400, "no_transcript", None)
    assert owner.post("import/?colour=red", TALK).error == (400, "invalid_input", "colour")


def test_too_large_upload_is_refused_packed_or_not(owner: Caller, settings: Any) -> None:
    settings.TRACESITE_MAX_BODY_BYTES = 2000
    large = BYTES + b" " * 2000
    assert owner.post("import/", large).error == (413, "too_large", None)
    sent = owner.post("import/", gzip.compress(large), content_type=ANYTHING)
    assert sent.error == (400, "no_transcript", None)
    assert sent.json["error"]["message"] == "No transcript was found. body: too large after decompression"
    assert owner.post("import/", gzip.compress(large), Content_Encoding="gzip").error == (413, "too_large", None)


def test_other_media_types_are_not_understood(owner: Caller) -> None:
    for media_type in ("", "text/plain", "application/x-www-form-urlencoded"):
        assert owner.post("import/", BYTES, content_type=media_type).error == (
            415,
            "unsupported_media_type",
            "Content-Type",
        )


def test_importing_needs_the_write_scope(viewer: Caller) -> None:
    assert viewer.post("import/", TALK).error == (403, "missing_scope", None)
    assert Caller().post("import/", TALK).error == (401, "not_authenticated", None)
