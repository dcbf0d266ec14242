"""Snapshots on the server: stored whole or not, within a project, without secrets, and purged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Session
from messages_app.writes import delete_session
from sdk.tests.records.billion_laughs import ref
from sdk.tests.secret import SECRET
from traces_app.ingest import snapshots
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.models import Snapshot, SnapshotPart, SnapshotSums
from traces_app.views.snapshots import MOST_REFS
from tracesite_sdk.records.snapshot_parts import ref_of

from .conftest import Caller

TS = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 10**9


def sent(
    *values: Any, number: int = 1, node: str = "plan", ts: int = TS, session: str = "task-1", **more: Any
) -> dict[str, Any]:
    """Return a request whose context is the first value, with the others as its parts."""
    parts = {ref_of(content): msgspec.Raw(content) for content in map(msgspec.json.encode, values)}
    snapshot = {"id": f"snapshot-{number}", "ts": ts, "node_ids": [node], "context_ref": next(iter(parts))}
    return {"session_id": session, "snapshot": snapshot, "parts": parts, **more}


def test_snapshot_is_read_whole_and_in_parts(owner: Caller, viewer: Caller, outsider: Caller) -> None:
    long = ["x" * 300, {"$type": "tuple", "value": [1, "\u0000"]}]
    context = {"messages": {"$list": ref([None, long]), "tail": ["y"]}, "system": {"$part": ref("exact")}}
    stored = owner.post("snapshots/", sent(context, [None, long], "exact"))
    assert stored.status == 201
    about = {
        "id": stored.json["snapshot_id"],
        "session_id": stored.json["session_id"],
        "external_id": "snapshot-1",
        "ts": TS,
        "node_ids": ["plan"],
        "context_ref": ref(context),
        "notes": [],
        "redactions": [],
        "is_purged": False,
        "created_at": "2026-03-01T12:00:00.000000Z",
    }
    assert viewer.get("sessions/task-1/snapshots/").json == {"results": [about], "next": None, "previous": None}
    assert viewer.get("sessions/task-1/snapshots/", node="plan").results == [about]
    assert viewer.get("sessions/task-1/snapshots/", node="other").results == []
    whole = {"messages": [*long, "y"], "system": "exact"}
    for name in (about["id"], "snapshot-1"):
        assert viewer.get(f"snapshots/{name}/").json == {**about, "context": whole}
        assert outsider.get(f"snapshots/{name}/").error == (404, "snapshot_not_found", None)
    parts = viewer.get("sessions/task-1/snapshots/parts/", refs=ref(context)).json["parts"]
    assert parts == {ref(value): value for value in (context, [None, long], "exact")}
    for path in ("snapshots/", f"snapshots/parts/?refs={ref(context)}", "forks/"):
        assert outsider.get(f"sessions/task-1/{path}").error == (404, "session_not_found", None)
    session = viewer.get("sessions/task-1/").json
    assert session["snapshot_sums"] == {
        "count": 1,
        "bytes": sum(len(msgspec.json.encode(value)) for value in (context, [None, long], "exact")),
        "left_out": {},
        "generation": 0,
    }
    assert "forked_from" not in session
    listed = {"id": "snapshot-1", "ts": about["created_at"], "nodeIds": ["plan"], "contextRef": ref(context)}
    assert session["snapshots"] == [listed]
    assert viewer.get("sessions/task-1/", fields="snapshots").json == {"snapshots": [listed]}
    # The same again, and one that needs no new part.
    assert owner.post("snapshots/", sent(context, [None, long], "exact")).json == stored.json
    owner.post("snapshots/", {**sent(context, number=2, ts=TS + 1000), "parts": {}})
    assert [one["external_id"] for one in viewer.get("sessions/task-1/snapshots/").results] == [
        "snapshot-2",
        "snapshot-1",
    ]
    assert SnapshotPart.objects.count() == 3
    assert owner.delete("sessions/task-1/").status == 204
    assert viewer.get("snapshots/snapshot-1/").status == 404
    assert owner.post("snapshots/", sent({}, number=3)).error == (409, "session_deleted", None)


def test_secrets_that_a_recorder_missed_are_redacted(owner: Caller) -> None:
    fork = {"session": "task-0", "node": "plan", "snapshot": "s", "overrides": {"token": SECRET}}
    owner.post("snapshots/", sent({"note": f"use {SECRET} here"}, fork=fork))
    found = owner.get("snapshots/snapshot-1/").json
    assert found["context"] == {"note": "use [redacted] here"}
    assert [receipt["path"] for receipt in found["redactions"]] == ["note"]
    session = owner.get("sessions/task-1/").json
    assert SECRET not in msgspec.json.encode([session, SnapshotSums.objects.get().fork]).decode()
    assert session["forked_from"]["overrides"] == {"token": "[redacted]"}


def test_code_of_a_replay_is_filled_in(owner: Caller, viewer: Caller, outsider: Caller) -> None:
    owner.post("snapshots/", sent({"city": "Oslo"}))
    newest = owner.post("snapshots/", sent({"messages": ["Hi"], "city": "Rome"}, number=2, ts=TS + 1)).json
    replay = "sessions/task-1/replay/"
    found = viewer.get(replay, node="plan").json
    assert (found["node"], found["snapshot_id"], found["language"]) == ("plan", newest["snapshot_id"], "python")
    compile(found["code"], "replay", "exec")
    assert "ServerStore('http://testserver')" in found["code"]
    assert "context = {'city': 'Rome'}" in found["code"]
    assert "machine.replay(session_id='task-1', node_id='plan', overrides={'context': context})" in found["code"]
    assert viewer.get(replay).error == (400, "invalid_input", "node")
    assert viewer.get(replay, node="x\0").error == (404, "node_not_found", "node")
    assert viewer.get(replay, node="plan", nodes="plan").error == (400, "invalid_input", "nodes")
    assert outsider.get(replay, node="plan").error == (404, "session_not_found", None)
    owner.delete("sessions/task-1/snapshots/")
    assert viewer.get(replay, node="plan").error == (409, "snapshots_purged", None)


def test_forks_are_listed_with_what_they_replayed(owner: Caller, viewer: Caller, outsider: Caller) -> None:
    owner.post("snapshots/", sent({"a": 1}))
    fork = {"session": "task-1", "node": "plan", "snapshot": "snapshot-1", "ts": 10**18, "overrides": {"model": "m2"}}
    mapped = {"nodes": {"other": "snapshot-1"}, "pruned": ["late"]}
    owner.post("snapshots/", {"session_id": "fork-1", "fork": {**fork, **mapped}})
    # By a recorder, whose store is local.
    owner.post("sessions/", {"external_id": "fork-2", "title": "Replay", "metadata": {"forked_from": fork}})
    outsider.post("sessions/", {"external_id": "fork-3", "metadata": {"forked_from": fork}})
    owner.post("sessions/", {"external_id": "fork-4", "metadata": {"forked_from": {"session": "task-1"}}})
    found = viewer.get("sessions/task-1/forks/", order="asc").results
    assert [(one["external_id"], one["title"], one["forked_from"]) for one in found] == [
        ("fork-1", "", {**fork, **mapped}),
        ("fork-2", "Replay", {**fork, "nodes": {}, "pruned": []}),
    ]
    assert viewer.get("sessions/fork-1/").json["metadata"] == {"forked_from": fork}
    assert viewer.get("sessions/fork-1/forks/").results == []


def test_wrong_snapshots_are_refused_whole(owner: Caller, viewer: Caller) -> None:
    part = {"$part": ref("gone")}
    for body, error in (
        (sent(part), (409, "parts_missing", "parts")),
        ({**sent({"a": 1}), "parts": {ref("b"): {"a": 1}}}, (400, "invalid_input", f"parts.{ref('b')}")),
        (sent({"$list": ref("no piece"), "tail": []}, "no piece"), (400, "invalid_input", f"parts.{ref('no piece')}")),
        (sent({"$part": "../x"}), (400, "invalid_input", f"parts.{ref({'$part': '../x'})}")),
        (sent({}, ts=1), (400, "invalid_input", "snapshot.ts")),
        (sent({}, ts=2**62), (400, "invalid_input", "snapshot.ts")),
        ({"session_id": ""}, (400, "invalid_input", "session_id")),
        ({"snapshot": None}, (400, "invalid_input", "session_id")),
        ({"session_id": "a", "left_out": {"every": -1}}, (400, "invalid_input", "left_out.every")),
        (b'{"session_id":"a","parts":{"x":' + b"[" * 100_000, (400, "invalid_json", None)),
    ):
        assert owner.post("snapshots/", body).error == error
    assert not Snapshot.objects.exists()
    assert not SnapshotPart.objects.exists()
    assert viewer.post("snapshots/", sent({})).error == (403, "missing_scope", None)
    assert viewer.get("sessions/task-1/snapshots/parts/").error == (400, "invalid_input", "refs")
    assert viewer.get("snapshots/a%00b/").error == (404, "snapshot_not_found", None)
    assert viewer.get("sessions/task-1/snapshots/", node="a\x00b").results == []


def test_snapshots_beyond_the_limits_are_refused(
    owner: Caller, viewer: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MOST_BYTES", 20)
    assert owner.post("snapshots/", sent({"a": 1})).status == 201
    assert owner.post("snapshots/", sent({"a": "x" * 20}, number=2)).error == (413, "snapshots_too_large", None)
    assert Snapshot.objects.count() == SnapshotPart.objects.count() == 1
    refs = [ref({"a": 1})] * MOST_REFS
    assert viewer.get("sessions/task-1/snapshots/parts/", refs=",".join(refs)).status == 200
    too_many = viewer.get("sessions/task-1/snapshots/parts/", refs=",".join([*refs, "x"]))
    assert too_many.error == (400, "invalid_input", "refs")


def test_purged_snapshots_say_so(owner: Caller, viewer: Caller) -> None:
    owner.post("snapshots/", sent({"text": {"$part": ref("x" * 300)}}, "x" * 300))
    assert viewer.delete("sessions/task-1/snapshots/").error == (403, "missing_scope", None)
    assert owner.delete("sessions/task-1/snapshots/").status == 204
    found = viewer.get("snapshots/snapshot-1/").json
    assert found["is_purged"] is True
    assert "context" not in found
    assert not SnapshotPart.objects.exists()
    assert owner.post("snapshots/", sent({}, number=2)).error == (409, "snapshots_purged", None)
    assert owner.post("snapshots/", sent({}, number=2, generation=1)).status == 201
    assert viewer.get("sessions/task-1/").json["snapshot_sums"] == {
        "count": 2,
        "bytes": 2,
        "left_out": {},
        "generation": 1,
    }


@pytest.mark.django_db(transaction=True)
def test_purge_removes_old_contents_and_those_of_removed_sessions() -> None:
    owner = Caller(create_key(Project.objects.create(slug="owner"), "agent", ["read", "write", "delete"])[1])
    owner.post("sessions/", {"external_id": "task-1", "messages": [{"role": "user", "content": "Hello"}]})
    now = timezone.now()
    late = int(now.timestamp()) * 10**9
    both = {"$part": ref("y" * 300)}
    owner.post("snapshots/", sent({"old": "x" * 300, "both": both}, "y" * 300))
    owner.post("snapshots/", {**sent({"new": 1, "both": both}, number=2, ts=late)})
    owner.post("snapshots/", sent({"a": 1}, number=3, ts=late, session="trash"))
    purge(
        primary,
        PurgeScope(created_before=now - timedelta(days=1), session_id=Session.objects.get(external_id="task-1").pk),
    )
    delete_session(primary, Session.objects.get(external_id="trash").pk, by="test")
    report = purge(primary, PurgeScope(deleted_before=timezone.now() + timedelta(seconds=1)))
    assert report.tables["snapshots"].rows == 3
    assert list(Snapshot.objects.values_list("external_id", "is_purged")) == [
        ("snapshot-2", False),
        ("snapshot-1", True),
    ]
    assert SnapshotPart.objects.count() == 2
    assert owner.get("snapshots/snapshot-2/").json["context"] == {"new": 1, "both": "y" * 300}
