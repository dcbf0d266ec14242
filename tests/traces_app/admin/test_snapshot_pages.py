"""The pages of a session's snapshots and forks, and of one snapshot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Session
from tests.admin_pages import html_of, links_of, statements_of, text_of
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.snapshots import remove_contents, store_snapshots
from traces_app.models import Snapshot, ToolCall
from traces_app.queries.json_changes import MISSING, changes
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_snapshots
from tracesite_sdk.records.snapshot_parts import ref_of
from tracesite_sdk.redaction.rules import DEFAULT_RULES

SCRIPT = "<script>alert(1)</script>"
HOSTILE_NODE = "plan'\u202e\n\U000e0041"


def keep(project: Project, number: int, context: Any, node: str) -> str:
    content = msgspec.json.encode(context)
    ref = ref_of(content)
    snapshot = records.Snapshot(id=f"s{number}", ts=10**18 + number * 10**9, node_ids=[node], context_ref=ref)
    sent = records.Snapshots(session_id="task", snapshot=snapshot, parts={ref: msgspec.Raw(content)})
    store_snapshots(primary, project.pk, redact_snapshots(sent, DEFAULT_RULES))
    return str(Snapshot.objects.get(external_id=f"s{number}").pk)


@pytest.fixture
def session(project: Project) -> Session:
    made = store(project, question(), answer(), title="Weather", external_id="task")
    return Session.objects.get(pk=made.id)


def fork(project: Project, name: str, of: str, node: str, **overrides: Any) -> Session:
    metadata = {"forked_from": {"session": of, "node": node, "snapshot": "s1", "overrides": overrides}}
    made = store(project, question(), answer(), title=name, external_id=name, metadata=metadata)
    return Session.objects.get(pk=made.id)


def test_forks_are_a_tree_and_lead_to_comparisons(staff: Client, project: Project, session: Session) -> None:
    page = f"/admin/messages_app/session/{session.pk}/"
    assert "Snapshots and forks" not in links_of(staff.get(f"{page}change/"))
    first = fork(project, "first", "task", "plan", model=f"m2 {SCRIPT}")
    fork(project, "second", str(session.pk), "search")
    deeper = fork(project, "deeper", "first", SCRIPT)
    fork(project, "circle", "circle", "plan")
    assert links_of(staff.get(f"{page}change/"))["Snapshots and forks"] == f"{page}snapshots/"
    shown = staff.get(f"/admin/messages_app/session/{deeper.pk}/snapshots/")
    text = text_of(shown)
    assert SCRIPT not in html_of(shown)
    for names in (("Weather", "first", "replays plan", "deeper"), ("Weather", "second", "replays search")):
        places = [text.rindex(name) for name in names]
        assert places == sorted(places), names
    assert "with model: m2 " in text
    assert f"/message/{session.last_run_id}/compare/?other={first.last_run_id}" in html_of(shown)
    assert "circle" in text_of(
        staff.get(f"/admin/messages_app/session/{Session.objects.get(external_id='circle').pk}/snapshots/")
    )
    # Two for each session of the tree, and its page's own.
    assert len(statements_of(staff, f"/admin/messages_app/session/{deeper.pk}/snapshots/")) < 19


def test_comparison_with_replay_leaves_out_what_came_before(staff: Client, project: Project) -> None:
    def step(thought: str, hour: int) -> dict[str, Any]:
        time = f"2026-01-01T{hour:02}:00:00Z"
        return {"thought": thought, "timestamp": time, "duration": 60_000, "tool_calls": [{"name": "look", "args": {}}]}

    begun = {"created_at": "2026-01-01T00:00:00Z"}
    source = store(
        project, question(**begun), answer(agent_steps=[step("Plan.", 1), step("Old.", 3)], **begun), external_id="task"
    )
    since = int(datetime(2026, 1, 1, 2, tzinfo=UTC).timestamp() * 1e9)
    metadata = {"forked_from": {"session": "task", "node": "look", "snapshot": "s1", "ts": since, "overrides": {}}}
    later = {"created_at": "2026-01-01T05:00:00Z"}
    runs = [answer(agent_steps=[step(text, 5)], external_id=text, **later) for text in ("New.", "More.")]
    fork_ = store(project, question(**later), *runs, external_id="f", metadata=metadata)
    one, other = (Session.objects.get(pk=made.id).last_run_id for made in (source, fork_))
    for left, right in ((one, other), (other, one)):
        page = staff.get(f"/admin/messages_app/message/{left}/compare/?other={right}")
        text = text_of(page)
        assert "since the snapshot of" in text
        assert "Plan." not in text
        assert all(thought in text for thought in ("Old", "New", "More"))
        for thought, message in (
            ("Old.", source.messages[1]),
            ("New.", fork_.messages[1]),
            ("More.", fork_.messages[2]),
        ):
            at = ToolCall.objects.get(step__thought=thought).pk
            selected = staff.get(f"/admin/messages_app/message/{left}/compare/?other={right}&at={at}")
            assert f"/message/{message.id}/change/?call={at}#call-{at}" in html_of(selected)


def test_snapshot_is_shown_with_its_difference_to_the_one_before(
    staff: Client, project: Project, session: Session
) -> None:
    messages = [{"role": "user", "content": "How is Oslo today?"}]
    first = keep(project, 1, {"messages": messages, "city": "Oslo", "gone": 1}, "plan")
    second = keep(
        project, 2, {"messages": [*messages, {"role": "assistant", "content": SCRIPT}], "city": "Oslo now"}, "search"
    )
    page = f"/admin/messages_app/session/{session.pk}/snapshots/"
    index = staff.get(page)
    assert (
        "2 Failed search Ask for both cities at once. get_weather: unknown city 1 added · 1 changed · 1 removed"
        in text_of(index)
    )
    # The one before the failure is selected.
    assert f'{page}{second}/#selected" aria-current="true"' in html_of(index)
    shown = staff.get(f"{page}{second}/")
    text = text_of(shown)
    assert SCRIPT not in html_of(shown)
    assert "Snapshot before search" in text
    for change in ("messages[1] added role: assistant content: ", "gone removed 1", "city Oslo → Oslo now"):
        assert change in text, change
    assert "<mark> now</mark>" in html_of(shown)
    assert links_of(shown)["Changed since the snapshot before"] == f"{page}{first}/"
    assert "Difference to 1 plan Replay from here" in text
    assert links_of(staff.get(f"{page}{first}/"))["2 search"] == f"?from={second}#selected"
    # What replays from it is filled in.
    replay = (
        "context = {'city': 'Oslo now'} # change this value"
        " replay = machine.replay(session_id='task', node_id='search', overrides={'context': context})"
    )
    assert replay in text
    assert "ServerStore('http://testserver')" in text
    assert "Changed since" not in text_of(staff.get(f"{page}{first}/"))
    keep(project, 3, [HOSTILE_NODE], HOSTILE_NODE)
    hostile = staff.get(f"{page}{keep(project, 4, [], HOSTILE_NODE)}/")
    assert f"node_id={HOSTILE_NODE!r})" in text_of(hostile)
    # A replay begins at the newest snapshot of a node.
    earlier = staff.get(f"{page}{Snapshot.objects.get(external_id='s3').pk}/")
    assert "machine.replay" not in text_of(earlier)
    assert "A replay of this node begins at its newest snapshot." in links_of(earlier)
    # The first one has another one to compare with, too, if somebody asks.
    other = text_of(staff.get(f"{page}{first}/?from={second}"))
    assert "Changed since the snapshot before search" in other
    assert "gone added 1" in other
    assert '"city":"Oslo now"' in text_of(staff.get(f"/api/v1/snapshots/{second}/"))
    remove_contents(primary, session.project_id, session.pk)
    assert "The content of this snapshot was purged." in text_of(staff.get(f"{page}{second}/"))
    for wrong in (
        f"{page}00000000-0000-7000-8000-000000000000/",
        "/admin/messages_app/session/00000000-0000-7000-8000-000000000000/snapshots/",
    ):
        assert staff.get(wrong).status_code == 302


def test_rows_say_what_happened_after_each_snapshot(staff: Client, project: Project) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)

    def step(place: int, **call: Any) -> dict[str, Any]:
        time = f"2026-01-01T00:00:0{place}Z"
        calls = [{"name": "look", "args": {}, "duration": 100, **call}]
        return {"iteration": place, "thought": f"Thought {place}.", "timestamp": time, "tool_calls": calls}

    steps = [step(1, result={"output": "x"}), step(2, result={"success": False, "error": SCRIPT}), step(4)]
    message = {**answer(agent_steps=steps), "created_at": began}
    session = Session.objects.get(pk=store(project, question(), message, external_id="task").id)
    base = int(began.timestamp()) - 10**9
    for second, context in ((1, {"a": 1}), (2, {"a": 1}), (3, {"a": 2}), (9, {"a": [2] * 50_000})):
        keep(project, base + second, context, f"node {second}")
    url = f"/admin/messages_app/session/{session.pk}/snapshots/"
    page = staff.get(url)
    text = text_of(page)
    assert SCRIPT not in html_of(page)
    for row in (
        "1 Done node 1 Thought 1. 00:00:01",
        "2 Failed node 2 Thought 2. look: alert(1) no change · 00:00:02",
        "3 Running node 3 Thought 4. 1 changed · 00:00:03",
        # What is large is not counted, and nothing happened after it.
        "4 node 9 00:00:09",
    ):
        assert row in text, text[:1000]
    # The one that led to the failure is selected.
    assert "Snapshot before node 2 Failed" in text
    assert f"/message/{session.last_run_id}/change/?call=" in links_of(page)["Step 2"]
    few = len(statements_of(staff, url))
    for second in range(10, 30):
        keep(project, base + second, {"a": second}, "more")
    assert len(statements_of(staff, url)) == few


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": {"b": 1}}, {"a": {"b": 2}, "c": 3}, [("a.b", 1, 2), ("c", MISSING, 3)]),
        ([1, 2, 3], [2, 3, 4], [("[0]", 1, MISSING), ("[2]", MISSING, 4)]),
        ([{"a": 1, "b": 1}], [{"a": 1, "b": 2}], [("[0].b", 1, 2)]),
        ({"a": [1]}, {"a": "1"}, [("a", [1], "1")]),
        (1, 2, [("", 1, 2)]),
    ],
)
def test_changes_of_values_have_paths(left: Any, right: Any, expected: list[Any]) -> None:
    assert [tuple(one) for one in changes(left, right)] == expected
