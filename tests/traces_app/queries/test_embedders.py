"""Embedders: a function, and a real server that speaks OpenAI's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from access_app.db import primary
from access_app.models import Project
from messages_app.change_log import Reader, unread
from messages_app.models import Message
from tests.traces_app.conftest import NOON
from tests.traces_app.maintenance.test_run_vectors import brought_up_to_date, found
from tests.traces_app.views.test_similar_runs import asked
from traces_app.ingest.changes import change_message
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.models import EmbedderInUse, RunVector
from traces_app.queries import embedders
from traces_app.queries.embedders import EmbedderError, configured
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES

MEANINGS = {"rain": 0, "weather": 0, "refund": 1, "money": 1}
FUNCTION = f"{__name__}:by_meaning"


def by_meaning(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts by what they are about, in whatever words."""
    return [[float(any(MEANINGS[word] == at for word in MEANINGS if word in text)) for at in (0, 1)] for text in texts]


def wrong_count(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0]] * (len(texts) + 1)


def not_numbers(texts: Sequence[str]) -> list[list[float]]:
    return [[float("nan")] for _text in texts]


class Service:
    """An OpenAI-compatible server, and the requests that it got."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []
        self.statuses: list[int] = []
        """Of the next answers; then 200."""
        self.refuses: Callable[[list[str]], bool] = lambda texts: False
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests.append((self.path, self.headers["Authorization"], body))
                texts = body["input"]
                status = service.statuses.pop(0) if service.statuses else 400 if service.refuses(texts) else 200
                rows = [{"index": at, "embedding": row} for at, row in enumerate(by_meaning(texts))]
                answer = json.dumps({"data": rows[::-1]}).encode()
                self.send_response(status)
                self.send_header("Location", "/v1/elsewhere")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(embedders, "_PAUSE_SECONDS", 0)
    service = Service()
    thread = threading.Thread(target=service.server.serve_forever)
    thread.start()
    with override_settings(
        TRACESITE_EMBEDDER=service.url, TRACESITE_EMBEDDER_MODEL="small", TRACESITE_EMBEDDER_KEY="secret-key"
    ):
        yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


def runs_of(project: Project) -> Any:
    asked(project, "rain", NOON, "Will it rain?", ("search", ""))
    asked(project, "money", NOON, "Where is my money?", ("search", ""))
    return asked(project, "given", NOON, "How is the weather?", ("search", ""))


@override_settings(TRACESITE_EMBEDDER=FUNCTION)
def test_function_embeds_questions(project: Project) -> None:
    run = runs_of(project)
    assert brought_up_to_date() == 3
    assert (EmbedderInUse.objects.get().name, EmbedderInUse.objects.get().width) == (FUNCTION, 2)
    assert found(run) == {"rain": (1, 1), "money": (0.375, 0)}
    question = Message.objects.get(role="user", session__external_id="money")
    change = records.MessagePatch(content="The weather and my money")
    change_message(primary, [project.pk], question.pk, redact_message_patch(normalise_patch(change), DEFAULT_RULES))
    assert found(run)["money"][1] == 0  # the stored question is another one
    assert brought_up_to_date() == 1
    assert found(run)["money"][1] == pytest.approx(0.7071, abs=0.01)


def test_service_embeds_each_question_once(project: Project, service: Service) -> None:
    run = runs_of(project)
    asked(project, "again", NOON, "Will it rain?")
    assert brought_up_to_date() == 4
    assert found(run)["rain"] == (1, 1)
    ((path, key, body),) = service.requests
    assert (path, key, body["model"]) == ("/v1/embeddings", "Bearer secret-key", "small")
    assert sorted(body["input"]) == ["How is the weather?", "Where is my money?", "Will it rain?"]
    asked(project, "given", NOON, "How is the weather?", ("read", "no disk"))
    brought_up_to_date()
    assert len(service.requests) == 1


def test_what_is_sent_is_redacted_and_cut(project: Project, service: Service) -> None:
    secret = "sk-ant-api03-" + "aB3" * 31 + "AA"
    asked(project, "one", NOON, f"Use {secret} for the weather {'x' * 5_000}")
    brought_up_to_date()
    (text,) = service.requests[0][2]["input"]
    assert "aB3aB3" not in text
    assert len(text) == 2_000


def test_failure_that_passes_is_retried(project: Project, service: Service) -> None:
    service.statuses = [429, 503]
    runs_of(project)
    assert brought_up_to_date() == 3
    assert len(service.requests) == 3


@pytest.mark.parametrize("status", [401, 307, 500])
def test_runs_wait_while_the_service_fails(project: Project, service: Service, status: int) -> None:
    run = runs_of(project)
    service.statuses = [status] * (embedders.ATTEMPTS if status == 500 else 1)
    assert brought_up_to_date() == 0
    assert store_vectors(primary, patience=timedelta(0)).failures == 0
    assert not unread(primary, Reader.VECTORS).exists()
    assert found(run)["rain"] == (1, 1)
    assert {path for path, _key, _body in service.requests} == {"/v1/embeddings"}


def test_refused_text_does_not_stop_the_others(project: Project, service: Service) -> None:
    run = runs_of(project)
    service.refuses = lambda texts: any("money" in text for text in texts)
    assert brought_up_to_date() == 3
    assert found(run) == {"rain": (1, 1), "money": (pytest.approx(0.6124, abs=1e-4), 0)}


def test_service_that_is_gone_is_waited_for(project: Project, service: Service) -> None:
    runs_of(project)
    with override_settings(TRACESITE_EMBEDDER="http://127.0.0.1:9/v1"):
        brought_up_to_date()
        assert store_vectors(primary, patience=timedelta(0)).failures == 1
        waiting = set(unread(primary, Reader.VECTORS).values_list("message_id", flat=True))
        assert len(waiting) == 6, "three runs and their questions"


def test_another_embedder_makes_all_vectors_again(project: Project) -> None:
    run = runs_of(project)
    assert brought_up_to_date() == 3
    with override_settings(TRACESITE_EMBEDDER=FUNCTION):
        assert store_vectors(primary, patience=timedelta(0)).runs == 3
        assert found(run)["rain"] == (1, 1)
    assert found(run)["rain"][1] < 1  # n-grams, until their vectors are made again
    assert store_vectors(primary, patience=timedelta(0)).runs == 3
    assert len(set(RunVector.objects.values_list("embedder_id", flat=True))) == 1


@pytest.mark.parametrize("name", ["wrong_count", "not_numbers"])
def test_wrong_vectors_are_refused(name: str) -> None:
    with override_settings(TRACESITE_EMBEDDER=f"{__name__}:{name}"):
        embedder = configured()
    assert embedder is not None
    with pytest.raises(EmbedderError, match="a vector of 1 to 4,096 numbers for each of the 2 texts"):
        embedder.embed(["a", "b"])


@pytest.mark.parametrize("place", ["nowhere.at_all:embed", f"{__name__}:missing"])
def test_missing_function_is_named(place: str) -> None:
    with override_settings(TRACESITE_EMBEDDER=place), pytest.raises(ImproperlyConfigured, match="which does not exist"):
        configured()
