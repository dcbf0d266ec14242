"""Test /.well-known/security.txt."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client

PATH = "/.well-known/security.txt"


def test_security_txt_without_contact_is_404(settings: Any) -> None:
    settings.TRACESITE_SECURITY_CONTACT = []
    answer = Client().get(PATH)
    assert (answer.status_code, b"TRACESITE_SECURITY_CONTACT" in answer.content) == (404, True)


def test_security_txt_has_contacts_and_a_date_in_the_future(settings: Any) -> None:
    settings.TRACESITE_SECURITY_CONTACT = ["mailto:security@example.org", "https://example.org/security"]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    client = Client(enforce_csrf_checks=True)
    answer = client.get(PATH)
    lines = answer.content.decode().splitlines()
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert [line for line in lines if not line.startswith("Expires: ")] == [
        "Contact: mailto:security@example.org",
        "Contact: https://example.org/security",
        "Preferred-Languages: en, zh",
    ]
    (expires,) = re.findall(r"^Expires: (\S+)$", answer.content.decode(), re.M)
    left = datetime.fromisoformat(expires) - datetime.now(UTC)
    assert timedelta(days=179) < left < timedelta(days=365)
    over_https = client.get(
        PATH, {"a": "1"}, headers={"Host": "localhost", "X-Forwarded-Proto": "https"}
    ).content.decode()
    assert over_https.splitlines()[-1] == f"Canonical: https://localhost{PATH}"
    assert client.post(PATH).status_code == 405
