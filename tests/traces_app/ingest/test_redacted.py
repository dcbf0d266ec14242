"""Redaction of patches as they are decoded."""

from __future__ import annotations

import msgspec
import pytest

from traces_app.ingest import decode
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch, redact_session_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES


@pytest.mark.parametrize("body", [b'{"metadata": {"auth_token": "t0p"}}', b'{"content": "password=hunter2"}'])
def test_patches_are_redacted_too(body: bytes) -> None:
    change = redact_message_patch(normalise_patch(decode.decode_message_patch(body)), DEFAULT_RULES)
    assert len(change.receipts) == 1
    assert b"t0p" not in msgspec.json.encode(change.patch)
    assert b"hunter2" not in msgspec.json.encode(change.patch)


def test_session_patches_are_redacted_too() -> None:
    change = redact_session_patch(decode.decode_session_patch(b'{"metadata": {"api_key": "k"}}'), DEFAULT_RULES)
    assert change.patch.metadata == {"api_key": "[redacted]"}
    assert [receipt.path for receipt in change.receipts] == ["metadata.api_key"]
