"""A server that answers readers, and the commands that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sdk.tests.recorder.servers import FakeTracesite, Response, serve
from tracesite_sdk.reading import commands

KEY = "ts_key_of_the_reader"
Run = Callable[..., tuple[int, str, str]]


def answered(text: str = "# Found\n", count: int = 1) -> Response:
    return 200, {"Content-Type": "text/markdown; charset=utf-8", "Tracesite-Result-Count": str(count)}, text.encode()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRACESITE_URL", "TRACESITE_KEY", "TRACESITE_INSECURE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTracesite]:
    """A server that the environment names, which has found something."""
    with serve() as fake:
        fake.answer = lambda _request: answered()
        monkeypatch.setenv("TRACESITE_URL", fake.url)
        monkeypatch.setenv("TRACESITE_KEY", KEY)
        yield fake


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; gives its exit status, its output and its errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = commands.main(arguments)
        except SystemExit as end:
            status = int(str(end.code))
        printed = capsys.readouterr()
        assert KEY not in printed.out + printed.err
        return status, printed.out, printed.err

    return run
