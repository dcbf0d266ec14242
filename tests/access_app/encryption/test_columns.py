"""The one list of what is encrypted covers every column of text or JSON, and its numbers stay."""

from __future__ import annotations

from django.apps import apps
from django.db import models

from access_app.encryption.columns import BY_NUMBER, ENCRYPTED
from access_app.encryption.fields import EncryptedJSON, EncryptedText

READABLE = {
    "messages_app_session": {"external_id", "end_user", "redactions", "deleted_by", "import_digests"},
    "messages_app_message": {"external_id", "request_id", "redactions", "deleted_by"},
    "messages_app_reference": {"reference_id", "knowledge_id", "sub_chunk_id", "chunk_type", "parent_chunk_id"},
    "traces_app_agentstep": {"agent_name", "model", "input_ref"},
    "traces_app_toolcall": {"call_id"},
    "traces_app_toolresult": set[str](),
    "traces_app_event": {"external_id", "type", "level", "category", "agent", "subject"},
    "traces_app_context": {"ref", "kind"},
    "traces_app_span": set[str](),
    "traces_app_score": {
        *("session_name", "message_name", "call_name", "name", "label", "author", "external_id", "redactions"),
    },
}
"""The reasons are in docs/security.md."""


def test_each_text_of_a_trace_is_encrypted_or_readable_for_a_reason() -> None:
    for model in apps.get_models():
        table = model._meta.db_table
        if table not in READABLE:
            assert table not in ENCRYPTED
            continue
        fields = {
            field.column: field
            for field in model._meta.concrete_fields
            if isinstance(field, models.TextField | models.JSONField | models.BinaryField)
        }
        assert set(fields) == READABLE[table] | set(ENCRYPTED[table])
        for name in ENCRYPTED[table]:
            assert isinstance(fields[name], EncryptedText | EncryptedJSON)


def test_numbers_are_unique() -> None:
    assert len(BY_NUMBER) == sum(map(len, ENCRYPTED.values()))
    assert BY_NUMBER[10][:2] == ("messages_app_message", "content")
