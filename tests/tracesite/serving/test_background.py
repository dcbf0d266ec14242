"""The background jobs of `serve`."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from access_app.models import Project
from tests.traces_app.conftest import store
from traces_app.models import SearchSegment, ToolPeriod, UnindexedMessage
from tracesite.serving import background


@pytest.mark.django_db(transaction=True)
def test_threads_store_hours_and_index_messages(project: Project) -> None:
    calls = [{"name": "search", "result": {"output": "x"}}]
    created_at = timezone.now() - timedelta(hours=9)
    message = {"role": "assistant", "created_at": created_at, "agent_steps": [{"iteration": 0, "tool_calls": calls}]}
    store(project, {"external_id": "a", **message})
    stopped = threading.Event()
    threads = background.start(stopped, pause=0.05)
    deadline = time.monotonic() + 20
    while (
        not ToolPeriod.objects.filter(project=project).exists() or UnindexedMessage.objects.exists()
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    stopped.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert not UnindexedMessage.objects.exists()
    assert SearchSegment.objects.count() == 1
    assert ToolPeriod.objects.filter(project=project, unit="hour", calls=1).count() == 1
