"""A test that neither this machine's settings nor recorders of other tests reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracesite_sdk.recorder import recording


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Isolate the test from this machine's settings and from recorders of other tests."""
    for name in ("TRACESITE_URL", "TRACESITE_KEY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRACESITE_SPOOL", str(tmp_path / "spool"))
    recording._latest.clear()
