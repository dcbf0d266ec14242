"""The example of the time machine, against the server: the comparison shows just what the replay changed."""

from __future__ import annotations

import pytest

from access_app.models import Project
from tests.traces_app.views.conftest import Caller
from tracesite.recorder.example_time_machine import failed_and_replayed
from tracesite.recorder.recorded import Recorded
from tracesite.recorder.snapshot_stores import SnapshotStore
from tracesite.recorder.testing import RecorderForTests, tree

from .conftest import TestConnection, send


@pytest.mark.django_db
@pytest.mark.requirement("004-26", "004-72")
def test_failed_run_is_replayed_and_goes_on(store: SnapshotStore, project: Project) -> None:
    recorder = RecorderForTests()
    session_id, replay = failed_and_replayed(recorder, store)
    recorder.close()
    assert tree(recorder.events) == [
        "message",
        "  step parcel desk scripted-chat-1",
        "  step parcel desk scripted-chat-1",
        "    find_order",
        "message",
        "  step parcel desk scripted-chat-1",
        "    find_order",
        "message",
        "  step parcel desk scripted-chat-1",
    ]
    assert [call.error for call in Recorded.of(recorder.events).calls] == ["LookupError: There is no order 2014.", None]
    assert [snapshot.node_ids for snapshot in store.snapshots(session_id)] == [("plan",), ("look_up",)]
    send(project, recorder)
    owner = Caller(TestConnection(project).token)
    (fork,) = owner.get(f"sessions/{session_id}/forks/").results
    assert (fork["external_id"], fork["forked_from"]["node"]) == (replay.session_id, "look_up")
    found = owner.get("compare/", left=session_id, right=replay.session_id).json
    (call,) = [pair for pair in found["pairs"] if pair["left"] and pair["left"]["kind"] == "call"]
    assert [(one["field"], one["left"][0]["text"], one["right"][0]["text"]) for one in call["differences"][:1]] == [
        ("args.number", "2014", "2041")
    ]
    assert {one["field"] for one in call["differences"]} >= {"args.number", "status", "error"}
