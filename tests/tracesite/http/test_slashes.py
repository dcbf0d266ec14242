"""Addresses without their last slash."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("method", ["get", "post", "patch"])
def test_redirect_keeps_the_method_and_says_what_to_do(client: Client, method: str) -> None:
    answer = getattr(client, method)("/api/v1/ingest")
    assert (answer.status_code, answer.headers["Location"]) == (308, "/api/v1/ingest/")
    assert answer.content == b"Nothing was done. This address ends with a slash: /api/v1/ingest/\n"
