"""The outline of a run and the payloads of its rows, as JSON for the explorer."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.encryption.keys import add_key
from access_app.masking import save_rule
from access_app.models import Project, Role
from access_app.roles import grant_role
from tests.admin_pages import html_of, links_of, statements_of, text_of
from tests.traces_app.conftest import NOON, answer, answered, question, store
from traces_app.admin import run_outline, run_page
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.runs import outline as outlines
from traces_app.queries.runs.outline import read_runs
from tracesite_sdk.records import ids

HOSTILE = "</script><script>alert(1)</script>\u202e\x1b[31m"


def url_of(message_id: UUID, node_id: UUID | None = None) -> str:
    url = f"/admin/messages_app/message/{message_id}/outline/"
    return f"{url}{node_id}/" if node_id else url


def test_outline_has_rows_in_reading_order(staff: Client, project: Project) -> None:
    outline = staff.get(url_of(answered(project))).json()
    names = [outline["names"][name] for name in outline["named"]]
    assert names[:3] == ["", "get_weather", "get_weather"]
    assert outline["numbers"][:4] == ["0", "", "", "1"]
    assert outline["depths"][:3] == [0, 1, 1]
    assert outline["calls"][:3] == [0, 1, 1]
    assert outline["statuses"][:3] == [1, 1, 2]
    assert outline["durations"][1:3] == [40, 12]
    assert len(outline["ids"]) == AgentStep.objects.count() + ToolCall.objects.count()
    assert outline["is_cut"] is False


def test_outline_has_costs_and_times_from_first_start(staff: Client, project: Project) -> None:
    start = NOON + timedelta(seconds=2, milliseconds=345)
    calls = [
        {"name": "a", "args": {}, "started_at": start, "completed_at": start + timedelta(milliseconds=7)},
        {"name": "b", "args": {}},
    ]
    step = {"timestamp": NOON, "cost": 0.0012, "tool_calls": calls}
    outline = staff.get(url_of(answered(project, agent_steps=[step]))).json()
    assert outline["starts"] == [0, 2345, None]
    assert outline["durations"][1:] == [7, None]
    assert outline["costs"] == {"0": "$0.0012"}


def first_rows_of(client: Client, message_id: UUID) -> Any:
    html = html_of(client.get(f"/admin/messages_app/message/{message_id}/change/"))
    found = re.search(r'<script id="run-first-rows" type="application/json">(.*?)</script>', html)
    assert found is not None
    return json.loads(found[1])


def test_first_rows_come_with_the_page(staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    message_id = answered(project)
    whole = staff.get(url_of(message_id)).json()
    rows = first_rows_of(staff, message_id)
    assert set(rows["words"]) == set(rows["ids"])
    assert {**rows, "words": {}} == whole
    monkeypatch.setattr(run_page, "FIRST_ROWS", 3)
    monkeypatch.setattr(run_outline, "FIRST_ROWS", 3)
    first = first_rows_of(staff, message_id)
    for column in ("ids", "calls", "depths", "statuses", "durations"):
        assert first[column] == whole[column][:3]
    assert (first["is_whole"], first["bottleneck"], whole["is_whole"]) == (False, None, True)


def words_of(client: Client, message_id: UUID, *ids: UUID) -> Any:
    return client.get(f"/admin/messages_app/message/{message_id}/words/", {"id": [str(key) for key in ids]})


def test_words_say_what_happened_in_a_row(staff: Client, project: Project) -> None:
    calls = [
        {"name": "Bash", "args": {"timeout": 9, "command": "go test ./..."}, "result": {"output": "a\nb\nc"}},
        {
            "name": "read_file",
            "args": {"path": "src/a.py"},
            "result": {"success": False, "error": "Traceback\nOSError: gone"},
        },
        {"name": "wait", "args": {}},
    ]
    message_id = answered(
        project, agent_steps=[{"agent_name": "dev", "thought": "**First**, the tests.", "tool_calls": calls}]
    )
    step = AgentStep.objects.get()
    made = {call.tool.name: call.pk for call in ToolCall.objects.select_related("tool")}
    words = words_of(staff, message_id, step.pk, *made.values()).json()
    assert words[str(step.pk)] == {"text": "First, the tests."}
    assert words[str(made["Bash"])] == {"text": "go test ./...", "note": "3 lines"}
    assert words[str(made["read_file"])] == {"text": "src/a.py", "error": "OSError: gone"}
    assert words[str(made["wait"])] == {}


def test_words_are_those_of_rows_of_the_run(staff: Client, project: Project) -> None:
    message_id = answered(project)
    other = store(project, answer(), external_id="other").messages[0].id
    call_id = ToolCall.objects.filter(message_id=other)[0].pk
    assert words_of(staff, message_id, call_id, uuid4()).json() == {}
    assert staff.get(f"/admin/messages_app/message/{message_id}/words/?id=junk").json() == {}
    assert words_of(staff, uuid4(), call_id).status_code == 404


def test_agent_is_named_where_it_changes(staff: Client, project: Project) -> None:
    made = [{"agent_name": name, "iteration": place} for place, name in enumerate(["a", "a", "b", "a"])]
    outline = staff.get(url_of(answered(project, agent_steps=made))).json()
    assert [outline["names"][name] for name in outline["named"]] == ["a", "", "b", "a"]


def rows_of(outline: Any) -> list[tuple[int, str, str]]:
    """Return depth, number and name of each row."""
    names = [outline["names"][name] for name in outline["named"]]
    return list(zip(outline["depths"], outline["numbers"], names, strict=True))


def test_call_stands_for_its_step_without_words(staff: Client, project: Project) -> None:
    def step(thought: str, *tools: str, **fields: Any) -> dict[str, Any]:
        return {"thought": thought, "tool_calls": [{"name": tool, "args": {}} for tool in tools], **fields}

    steps = [
        step("I look.", "a"),
        step("\n\n", "b", agent_name="dev", cost=0.5, timestamp=NOON, duration=30),
        step("", "c", agent_name="dev", timestamp=NOON, duration=20),
        step("", "d", "e"),
        step("", "f", reasoning_content="Hm."),
        step(""),
    ]
    message_id = answered(project, agent_steps=steps)
    outline = staff.get(url_of(message_id)).json()
    assert rows_of(outline) == [
        *[(0, "0", ""), (1, "", "a")],
        *[(0, "1", "b"), (0, "2", "c")],
        *[(0, "3", ""), (1, "", "d"), (1, "", "e")],
        *[(0, "4", ""), (1, "", "f"), (0, "5", "")],
    ]
    stored = [str(key) for key in AgentStep.objects.order_by("iteration").values_list("pk", flat=True)]
    assert outline["steps"] == {
        "2": [stored[1], 0, 30, outline["names"].index("dev")],
        "3": [stored[2], 0, 20, None],
    }
    assert outline["costs"] == {"2": "$0.5000"}
    assert set(outline["ids"]).isdisjoint(stored[1:3])
    assert rows_of(first_rows_of(staff, message_id)) == rows_of(outline)


def test_last_first_rows_have_all_steps(staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"tool_calls": [{"name": "a", "args": {}}] * count} for count in (1, 2)]
    message_id = answered(project, agent_steps=steps)
    monkeypatch.setattr(run_page, "FIRST_ROWS", 4)
    monkeypatch.setattr(run_outline, "FIRST_ROWS", 4)
    assert rows_of(first_rows_of(staff, message_id)) == [(0, "0", "a"), (0, "1", ""), (1, "", "a")]


def test_rows_below_call_that_stands_for_step_are_one_level_higher(staff: Client, project: Project) -> None:
    ask = {"uuid": "ask", "id": "ask", "name": "ask", "args": {}}
    inner = {"id": "inner", "name": "look", "parent": "ask", "args": {}}
    steps = [{"tool_calls": [ask]}, {"thought": "I look.", "tool_calls": [inner]}, {"tool_calls": [inner]}, {}]
    outline = staff.get(url_of(answered(project, agent_steps=steps))).json()
    assert rows_of(outline) == [(0, "0", "ask"), (1, "1", ""), (2, "", "look"), (1, "2", "look"), (0, "3", "")]


def test_step_that_is_the_bottleneck_has_a_row(staff: Client, project: Project) -> None:
    call = {"name": "a", "args": {}, "started_at": NOON + timedelta(seconds=9), "duration": 10}
    steps = [{"timestamp": NOON, "duration": 9_000, "tool_calls": [call]}]
    outline = staff.get(url_of(answered(project, agent_steps=steps))).json()
    assert (rows_of(outline), outline["bottleneck"]) == ([(0, "0", ""), (1, "", "a")], 0)


def test_equal_calls_are_below_the_first(staff: Client, project: Project) -> None:
    def call(tool: str, argument: str = "x", error: str = "", **fields: Any) -> dict[str, Any]:
        result = {"success": False, "error": error} if error else {"output": uuid4().hex}
        return {"name": tool, "args": {"path": argument}, "result": result, **fields}

    many = [
        *[call("a"), call("a"), call("a", "y"), call("b", "y")],
        *[call("b", "y", "gone"), call("b", "y", "gone"), call("b", "y", "late")],
        *[call("a"), call("c", uuid="c", id="c"), call("c"), call("d", parent="c")],
    ]
    alone = [call("go", error="no host") for _attempt in range(3)]
    steps: list[dict[str, Any]] = [
        {"thought": "I look.", "tool_calls": many},
        {"thought": "Once more.", "tool_calls": [call("a")]},
    ]
    steps += [{"agent_name": "x" if number else "w", "tool_calls": [one]} for number, one in enumerate(alone)]
    outline = staff.get(url_of(answered(project, agent_steps=steps))).json()
    assert [(depth, name) for depth, _number, name in rows_of(outline)] == [
        *[(0, ""), (1, "a"), (2, "a"), (1, "a"), (1, "b")],
        *[(1, "b"), (2, "b"), (1, "b")],
        *[(1, "a"), (1, "c"), (2, "d"), (1, "c")],
        *[(0, ""), (1, "a")],
        *[(0, "go"), (0, "go"), (1, "go")],
    ]
    assert outline["repeats"] == {"1": 2, "5": 2, "15": 2}


def test_long_arguments_are_not_compared(staff: Client, project: Project) -> None:
    text = "".join(uuid4().hex for _place in range(outlines.COMPARED_BYTES // 16))
    message_id = answered(project, agent_steps=[{"tool_calls": [{"name": "a", "args": {"text": text}}] * 2}])
    assert staff.get(url_of(message_id)).json()["repeats"] == {}


def test_encrypted_calls_are_not_equal(keeper: None, staff: Client, project: Project) -> None:
    add_key(project)
    steps = [{"tool_calls": [{"name": "a", "args": {"path": "x"}}]}] * 2 + [{"thought": "I look."}]
    outline = staff.get(url_of(answered(project, agent_steps=steps))).json()
    assert rows_of(outline) == [(0, "0", "a"), (0, "1", "a"), (0, "2", "")]
    assert outline["repeats"] == {}


def test_masked_reader_gets_the_same_rows(project: Project) -> None:
    save_rule(project, "all", "pattern", "[0-9a-z]{2,40}", when="read")
    viewer = User.objects.create_user("bob")
    grant_role(project, viewer, Role.VIEWER)
    client = Client()
    client.force_login(viewer)
    steps = [{"tool_calls": [{"name": "a", "args": {"path": "x"}}]}] * 2 + [{"thought": "I look."}]
    outline = client.get(url_of(answered(project, agent_steps=steps))).json()
    assert rows_of(outline) == [(0, "0", "a"), (1, "1", "a"), (0, "2", "")]


def test_bottleneck_is_the_longest_row_on_the_critical_path(staff: Client, project: Project) -> None:
    def call(name: str, after: int, took: int) -> dict[str, Any]:
        return {"name": name, "args": {}, "started_at": NOON + timedelta(milliseconds=after), "duration": took}

    calls = [call("short", 100, 200), call("long", 100, 900), call("last", 1_000, 300)]
    step = {"timestamp": NOON, "duration": 100, "tool_calls": calls}
    outline = staff.get(url_of(answered(project, agent_steps=[step]))).json()
    assert outline["critical"] == [1, 0, 1, 1]
    assert outline["names"][outline["named"][outline["bottleneck"]]] == "long"


def test_bottleneck_without_start_times_follows_from_durations(staff: Client, project: Project) -> None:
    calls = [
        {"name": name, "args": {}, "duration": took} for name, took in (("short", 30), ("long", 850), ("last", 20))
    ]
    outline = staff.get(url_of(answered(project, agent_steps=[{"tool_calls": calls}]))).json()
    assert outline["starts"] == [None] * 4
    assert outline["critical"] == [0] * 4
    assert outline["names"][outline["named"][outline["bottleneck"]]] == "long"


def test_outline_of_longer_run_needs_no_more_queries(staff: Client, project: Project) -> None:
    call = {"name": "read", "args": {}, "result": {"output": "secret payload"}}
    short = statements_of(staff, url_of(answered(project)))
    steps = [{"iteration": step, "tool_calls": [call] * 10} for step in range(50)]
    long = store(project, answer(agent_steps=steps), external_id="long").messages[0].id
    assert isinstance(long, UUID)
    assert len(statements_of(staff, url_of(long))) == len(short) <= 7
    response = staff.get(url_of(long))
    assert len(response.json()["ids"]) == 550
    assert b"secret payload" not in response.content


def test_outline_beyond_its_limit_is_cut(staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "OUTLINE_ROWS", 1)
    assert staff.get(url_of(answered(project))).json()["is_cut"] is True


def test_rows_of_several_runs_take_the_same_queries(project: Project, django_assert_num_queries: Any) -> None:
    runs = [answered(project, external_id=f"run {number}") for number in range(3)]
    with django_assert_num_queries(3):
        found = read_runs(primary, [*runs[::-1], ids.message_id(NOON, "assistant")])
    assert list(found)[:3] == runs[::-1]
    alone = read_runs(primary, runs[:1])[runs[0]]
    assert [found[run].depths for run in runs] == [alone.depths] * 3
    assert found[runs[0]] == alone
    assert len({key for rows in found.values() for key in rows.ids}) == 3 * len(alone.ids)
    assert [rows.ids for rows in list(found.values())[3:]] == [[]]
    assert read_runs(primary, []) == {}


@pytest.mark.parametrize("limit", [1, 4, 6])
def test_rows_beyond_the_sum_of_several_runs_are_cut(
    project: Project, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    steps = [{"tool_calls": [{"name": "read", "args": {}}] * 2}] * 2
    runs = sorted(answered(project, external_id=f"run {number}", agent_steps=steps) for number in range(2))
    monkeypatch.setattr(outlines, "OUTLINE_ROWS", limit)
    found = read_runs(primary, runs)
    assert [found[run].is_cut for run in runs] == [limit < 4, True]


def test_outline_and_payloads_need_permission(staff: Client, project: Project) -> None:
    message_id = answered(project)
    call_id = ToolCall.objects.all()[0].pk
    other = Client()
    urls = (url_of(message_id), url_of(message_id, call_id), f"/admin/messages_app/message/{message_id}/words/")
    for url in urls:
        assert other.get(url).status_code == 302
    other.force_login(User.objects.create_user("bob", is_staff=True))
    for url in urls:
        assert other.get(url).status_code == 403


def test_unknown_message_or_row_is_not_found(staff: Client, project: Project) -> None:
    message_id = answered(project)
    other = store(project, answer(), external_id="other").messages[0].id
    call_id = ToolCall.objects.filter(message_id=other)[0].pk
    assert staff.get(url_of(uuid4())).status_code == 404
    assert staff.get(url_of(message_id, uuid4())).status_code == 404
    assert staff.get(url_of(message_id, call_id)).status_code == 404


def test_hostile_names_have_no_hidden_characters(staff: Client, project: Project) -> None:
    call = {"name": HOSTILE, "args": {HOSTILE: HOSTILE}, "result": {"success": False, "error": HOSTILE}}
    message_id = answered(project, agent_steps=[{"agent_name": HOSTILE, "tool_calls": [call]}])
    response = staff.get(url_of(message_id))
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert all("\u202e" not in name and "\x1b" not in name for name in response.json()["names"])


def test_detail_of_call_has_its_payloads(staff: Client, project: Project) -> None:
    message_id = answered(project)
    failed = ToolCall.objects.get(status="error")
    queries = statements_of(staff, url_of(message_id, failed.pk))
    assert len(queries) <= 9
    detail = staff.get(url_of(message_id, failed.pk)).json()
    values = {value["column"]: value["text"] for value in detail["values"]}
    assert detail["title"] == "get_weather"
    assert values["error"] == "unknown city"
    assert values["reflection"] == "The city does not exist."
    assert '"Atlantis"' in values["args"]
    assert detail["api"] == f"/api/v1/tool-calls/{failed.pk}/"


def test_detail_of_long_value_is_cut_with_its_url(staff: Client, project: Project) -> None:
    call = {"name": "read", "args": {}, "result": {"output": "x" * 200_000}}
    message_id = answered(project, agent_steps=[{"tool_calls": [call]}])
    detail = staff.get(url_of(message_id, ToolCall.objects.get().pk)).json()
    (output,) = [value for value in detail["values"] if value["column"] == "output"]
    assert (len(output["text"]), output["bytes"], output["is_cut"]) == (65_536, 200_000, True)
    assert b"".join(staff.get(output["url"])) == b"x" * 200_000


@pytest.mark.parametrize("lines", [60, 20_000])
def test_long_error_keeps_its_end(staff: Client, project: Project, lines: int) -> None:
    error = "\n".join(f"line {number}" for number in range(lines)) + "\nFAILED test_sum - assert 3 == 4"
    call = {"name": "Bash", "args": {}, "result": {"success": False, "error": error}}
    message_id = answered(project, agent_steps=[{"tool_calls": [call]}])
    detail = staff.get(url_of(message_id, ToolCall.objects.get().pk)).json()
    (shown,) = [value for value in detail["values"] if value["column"] == "error"]
    assert shown["text"].startswith("line 0\n")
    assert f"⋯ {lines + 1 - 40} lines are left out ⋯" in shown["text"]
    assert shown["text"].endswith("FAILED test_sum - assert 3 == 4")
    assert (shown["is_cut"], b"".join(staff.get(shown["url"])).decode()) == (True, error)


def test_thought_in_detail_is_safe_markdown(staff: Client, project: Project) -> None:
    thought = "**Look** <script>alert(1)</script> ![x](https://evil.example/p.png)"
    message_id = answered(project, agent_steps=[{"thought": thought}])
    (value,) = staff.get(url_of(message_id, AgentStep.objects.get().pk)).json()["values"]
    assert value["text"] == thought
    assert "<strong>Look</strong>" in value["html"]
    assert "<script" not in value["html"]
    assert "<img" not in value["html"]


def test_detail_of_step_has_its_thought(staff: Client, project: Project) -> None:
    message_id = answered(project)
    step = AgentStep.objects.order_by("iteration")[0]
    detail = staff.get(url_of(message_id, step.pk)).json()
    assert detail["title"] == "Step 0"
    assert detail["values"][0]["text"] == "Ask for both cities at once."


def test_good_call_is_that_with_the_same_argument(staff: Client, project: Project) -> None:
    def run(name: str, *calls: dict[str, Any]) -> UUID:
        made = answer(external_id=f"{name} answer", agent_steps=[{"tool_calls": list(calls)}])
        asked = question(external_id=f"{name} question")
        return UUID(str(store(project, asked, made, external_id=name).messages[1].id))

    def call(city: str, **result: Any) -> dict[str, Any]:
        return {"name": "find", "args": {"city": city}, "result": result}

    failed = {"success": False, "error": "no network"}
    run("good", call("Rome", output="rain"), call("Oslo", output="sun"))
    bad = run("bad", call("Oslo", **failed), call("Bonn", **failed), {**call("Oslo", **failed), "name": "other"})
    shown = []
    for row in ToolCall.objects.filter(message_id=bad).order_by("position"):
        url = staff.get(url_of(bad, row.pk)).json()["good"]
        assert len(statements_of(staff, url)) <= 16
        good = staff.get(url).json()
        shown.append(good.get("problem") or [one["text"] for one in good["values"] if one["column"] == "output"])
    assert shown == [["sun"], ["rain"], "No good run of the same question has this call."]
    assert staff.get(f"{url_of(uuid4(), row.pk)}?good").status_code == 404


def test_similar_counts_calls_and_runs_of_the_last_days(staff: Client, project: Project) -> None:
    def run(name: str, at: datetime, *errors: str) -> UUID:
        calls = [{"name": "find", "args": {}, "result": {"success": False, "error": error}} for error in errors]
        made = answer(external_id=name, created_at=at, agent_steps=[{"tool_calls": calls}])
        return UUID(str(store(project, made, external_id=name).messages[0].id))

    now = timezone.now()
    first = run("first", now, "no host 1", "no host 2", "boom")
    run("second", now - timedelta(days=29), "no host 3")
    run("old", now - timedelta(days=31), "no host 4")
    call = ToolCall.objects.filter(message_id=first).order_by("position").first()
    assert call is not None
    url = staff.get(url_of(first, call.pk)).json()["similar"]
    part = staff.get(url)
    assert "In the last 30 days: 3 calls with this error, in 2 runs." in html_of(part)
    # The run that it is of is not like itself, and the old one is too old.
    like = ToolCall.objects.get(message__external_id="second")
    assert "First 29 days ago , last just now . Failed (no question) find no host 3 29 days ago" in text_of(part)
    assert text_of(part).endswith("No call of this tool succeeded in the last 30 days.")
    assert list(links_of(part).values()) == [f"/admin/messages_app/message/{like.message_id}/change/?call={like.pk}"]
    good = {"name": "find", "args": {"host": "b"}, "result": {"success": True, "output": "found"}}
    fine = store(project, answer(external_id="fine", agent_steps=[{"tool_calls": [good]}], created_at=now))
    part = staff.get(url)
    assert "The last call of this tool that succeeded Compare" in text_of(part)
    other = f"/admin/messages_app/message/{first}/compare/?other={fine.messages[0].id}"
    assert links_of(part)["Compare"] == other
    assert len(statements_of(staff, url)) <= 30
    assert staff.get(url.replace(str(first), str(uuid4()))).status_code == 404
    assert staff.get(url.replace(str(call.pk), str(like.pk))).status_code == 404


def test_models_are_named_in_the_header_the_details_and_the_panel(staff: Client, project: Project) -> None:
    steps = [{"thought": "Look.", "model": model} for model in ("small-1", "large-2", "small-1", "")]
    outcome = store(project, question(), answer(agent_steps=steps))
    run = f"/admin/messages_app/message/{outcome.messages[1].id}"
    page = staff.get(f"{run}/change/")
    assert '<li class="with-room" title="Model"><bdi>large-2</bdi> +1</li>' in html_of(page)
    assert "Models large-2 small-1" in text_of(page)
    step = AgentStep.objects.get(model="large-2")
    assert staff.get(f"{run}/outline/{step.pk}/").json()["model"] == "large-2"
    # An answer without steps says itself which model wrote it.
    alone = store(project, question(), answer(agent_steps=[], metadata={"model": "<b>tiny</b>"}), external_id="alone")
    page = staff.get(f"/admin/messages_app/message/{alone.messages[1].id}/change/")
    assert "Model <b>tiny</b>" in text_of(page)
