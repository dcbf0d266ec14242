"""/errors/ over HTTP: groups of equal errors, and the calls of a group."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message, Session
from tests.traces_app.conftest import NOON, store
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.models import Tool
from traces_app.queries import error_groups

from .conftest import Answer, Caller

REFUSED = "connection to 'db-1' refused"
DAY = {"created_after": "2026-03-01", "created_before": "2026-03-02"}


def failed(tool: str, error: str) -> dict[str, Any]:
    return {"name": tool, "result": {"success": False, "error": error}}


def run(name: str, at: datetime, *calls: dict[str, Any], **step: Any) -> dict[str, Any]:
    return {
        "external_id": name, "role": "assistant", "created_at": at, "agent_steps": [{"tool_calls": list(calls), **step}],
    }  # fmt: skip


@pytest.fixture(params=["unread", "read"], autouse=True)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for errors whose patterns are not stored, and again for those whose patterns are."""
    if request.param == "read":
        get = Caller.get

        def read_and_get(caller: Caller, path: str, **parameters: Any) -> Answer:
            store_patterns(primary, patience=timedelta(0))
            return get(caller, path, **parameters)

        monkeypatch.setattr(Caller, "get", read_and_get)


@pytest.fixture
def errors(project: Project) -> None:
    fine = {"name": "search", "result": {"output": "timeout after 1 s"}}
    store(
        project,
        run("one", NOON, failed("search", "timeout after 31.5 s"), fine, agent_name="planner", model="gpt-5"),
        run("two", NOON + timedelta(hours=2), failed("read", "timeout after 7 s"), failed("read", REFUSED)),
        external_id="s1",
    )
    store(
        project,
        run("three", NOON + timedelta(hours=2, minutes=5), failed("read", "timeout after 8 s")),
        external_id="s2",
    )


@pytest.mark.usefixtures("errors")
def test_equal_errors_are_one_group(viewer: Caller) -> None:
    found = viewer.get("errors/", **DAY).json
    last = Message.objects.get(external_id="three")
    call = last.calls.get()
    assert found == {
        "results": [
            {
                "id": "5ef41690f919351dceea8bde33f90224", "pattern": "timeout after # s", "call_count": 3,
                "first_seen_at": "2026-03-01T12:00:00.000000Z", "last_seen_at": "2026-03-01T14:05:00.000000Z",
                "tools": [
                    {"name": "read", "project": "owner", "call_count": 2},
                    {"name": "search", "project": "owner", "call_count": 1},
                ],
                "tool_count": 2,
                "end_user_count": 0,
                "last_example": {
                    "call": str(call.pk), "message_id": str(last.pk), "session_id": str(last.session_id), "tool": "read",
                    "project": "owner", "error": "timeout after 8 s", "created_at": "2026-03-01T14:05:00.000000Z",
                },
                "trend": [
                    {"begin": "2026-03-01T12:00:00.000000Z", "call_count": 1},
                    {"begin": "2026-03-01T14:00:00.000000Z", "call_count": 2},
                ],
                "change": "steady",
            },
            found["results"][1],
        ],
        "group_count": 2, "call_count": 4, "counted_from": None, "trend_step": 3600,
    }  # fmt: skip
    assert (found["results"][1]["pattern"], found["results"][1]["call_count"]) == ("connection to 'db-#' refused", 1)


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("extra", [{}, {"tool": "read"}, {"session": "s2"}, {"created_after": "2026-03-01T13:00:00Z"}])
def test_group_leads_to_its_calls(viewer: Caller, extra: dict[str, str]) -> None:
    group = viewer.get("errors/", **extra).results[0]
    calls = viewer.get("tool-calls/", error_group=group["id"], **extra).results
    assert len(calls) == group["call_count"]
    assert {call["result"]["error"][:13] for call in calls} == {"timeout after"}
    assert viewer.get("tool-calls/", error_group=group["id"], status="success").results == []


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ({}, [3, 1]), ({"tool": "search"}, [1]), ({"tool": ["search", "read"]}, [3, 1]), ({"tool": "none"}, []),
        ({"session": "s1"}, [2, 1]), ({"agent": "planner"}, [1]), ({"model": "gpt-5"}, [1]), ({"model": "x"}, []),
        ({"project": "owner"}, [3, 1]), ({"created_after": "2026-03-01T14:01:00Z"}, [1]),
        ({"created_before": "2026-03-01"}, []), ({"limit": "1"}, [3]), ({"sort": "first_seen"}, [1, 3]),
        ({"sort": "last_seen"}, [3, 1]), ({"agent": "planner", **DAY}, [1]),
    ],
)  # fmt: skip
def test_filters_limit_the_grouped_calls(viewer: Caller, query: dict[str, Any], counts: list[int]) -> None:
    assert [group["call_count"] for group in viewer.get("errors/", **query).results] == counts


@pytest.mark.usefixtures("errors")
def test_other_projects_errors_are_not_shown(
    viewer: Caller, outsider: Caller, project: Project, stranger: Project
) -> None:
    store(stranger, run("s", NOON, failed("secret", "timeout after 1 s")), external_id="s")
    (group,) = outsider.get("errors/").results
    assert (group["call_count"], group["tools"]) == (1, [{"name": "secret", "project": "stranger", "call_count": 1}])
    assert viewer.get("errors/").results[0]["call_count"] == 3
    assert len(viewer.get("tool-calls/", error_group=group["id"]).results) == 3
    assert viewer.get("errors/", project="stranger").error == (404, "not_found", "project")
    assert viewer.get("errors/", session="s").status == 404


@pytest.mark.usefixtures("errors")
def test_deleted_calls_are_left_out(viewer: Caller) -> None:
    writes.delete_message(primary, Message.objects.get(external_id="one").pk, by="ada")
    assert [group["call_count"] for group in viewer.get("errors/").results] == [2, 1]
    writes.delete_session(primary, Session.objects.get(external_id="s1").pk, by="ada")
    (group,) = viewer.get("errors/").results
    assert (group["call_count"], group["first_seen_at"]) == (1, "2026-03-01T14:05:00.000000Z")
    assert len(viewer.get("tool-calls/", error_group=group["id"]).results) == 1


@pytest.mark.usefixtures("errors")
def test_newest_failed_calls_are_grouped(viewer: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_groups, "MOST_READ", 2)
    found = viewer.get("errors/").json
    assert (found["call_count"], found["counted_from"]) == (2, "2026-03-01T14:00:00.000000Z")


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("most", [4, 5])
def test_calls_up_to_the_limit_are_all_counted(viewer: Caller, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_groups, "MOST_READ", most)
    found = viewer.get("errors/").json
    assert (found["call_count"], found["counted_from"]) == (4, None)


@pytest.mark.parametrize(
    ("reading", "most", "counted"),
    [("unread", 10_000, 5), ("unread", 5_000, 4), ("unread", 2_500, 2), ("unread", 1, 1), ("read", 1, 5)],
    indirect=["reading"],
)
def test_fewer_calls_are_grouped_if_unread_errors_are_long(
    viewer: Caller, project: Project, most: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_groups, "MOST_CHARACTERS", most)
    runs = (run(f"m{at}", NOON + timedelta(minutes=at), failed("t", "no " * 400)) for at in range(5))
    store(project, *runs)
    found = viewer.get("errors/").json
    oldest = None if counted == 5 else f"2026-03-01T12:{5 - counted:02}:00.000000Z"
    assert (found["call_count"], found["counted_from"]) == (counted, oldest)


@pytest.mark.parametrize(
    ("reading", "most", "change"),
    [("unread", 10_000, "steady"), ("unread", 1_000, "new"), ("read", 1_000, "steady")],
    indirect=["reading"],
)
def test_fewer_calls_before_the_range_are_read_if_long(
    viewer: Caller, project: Project, most: int, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, long = NOON - timedelta(hours=1), NOON - timedelta(minutes=1)
    store(project, run("before", before, failed("t", REFUSED)), run("long", long, failed("t", "no " * 400)))
    store(project, run("now", NOON, failed("t", REFUSED)))
    monkeypatch.setattr(error_groups, "MOST_KNOWN_CHARACTERS", most)
    (group,) = viewer.get("errors/", created_after=NOON.isoformat(), created_before="2026-03-02").results
    assert group["change"] == change


@pytest.mark.usefixtures("errors")
def test_tools_of_a_group_are_limited(viewer: Caller, project: Project) -> None:
    store(project, run("many", NOON, *(failed(f"tool {at}", "no disk") for at in range(30))))
    group = viewer.get("errors/").results[0]
    assert (group["call_count"], group["tool_count"], len(group["tools"])) == (30, 30, 10)
    assert Tool.objects.count() == 32


def test_errors_of_a_month_have_a_short_trend(viewer: Caller, project: Project) -> None:
    store(project, *(run(f"m{day}", NOON + timedelta(days=day), failed("t", f"no row {day}")) for day in range(90)))
    (group,) = viewer.get("errors/", created_before="2026-06-01").results
    assert group["call_count"] == 90
    assert len(group["trend"]) <= 62


@pytest.mark.parametrize(
    "query", ["status=error", "sort=x", "limit=201", "limit=0", "created_after=x", "cursor=x", "tool=%00"]
)
def test_bad_parameter_of_errors_is_named(viewer: Caller, query: str) -> None:
    assert viewer.get(f"errors/?{query}").error == (400, "invalid_input", query.partition("=")[0])


@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ({"created_before": "9999-12-31"}, 2), ({"created_after": "9999-01-01"}, 0), ({"created_after": "0001-01-01"}, 2),
        ({"created_before": "1960-01-01"}, 0), ({"created_after": "2026-03-02", "created_before": "2026-03-01"}, 0),
    ],
)  # fmt: skip
def test_ends_of_the_calendar_are_accepted(viewer: Caller, query: dict[str, str], groups: int) -> None:
    assert len(viewer.get("errors/", **query).results) == groups


@pytest.mark.parametrize("group", ["x", "' OR 1=1 --", "%s", "\N{SNOWMAN}"])
def test_unknown_group_has_no_calls(viewer: Caller, weather: object, group: str) -> None:
    assert viewer.get("tool-calls/", error_group=group).results == []


def test_errors_need_the_scope_read(project: Project) -> None:
    assert Caller().get("errors/").status == 401


# --- Errors like that of a call ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("errors")
def test_errors_like_that_of_a_call_come_first(viewer: Caller, project: Project) -> None:
    near = failed("read", "timeout after 9 s of waiting")
    store(project, run("near", NOON, near, failed("pay", "no money")), external_id="near")
    call = Message.objects.get(external_id="one").calls.get(status="error")
    found = viewer.get(f"tool-calls/{call.pk}/similar/").json
    own, other = found["results"]
    assert (own["pattern"], own["score"], own["call_count"]) == ("timeout after # s", 1, 3)
    assert (other["pattern"], other["call_count"]) == ("timeout after # s of waiting", 1)
    assert 0.3 <= other["score"] < 1
    assert (found["group_count"], found["call_count"]) == (4, 6)
    assert len(viewer.get(f"tool-calls/{call.pk}/similar/", limit=1).results) == 1
    assert len(viewer.get(f"tool-calls/{call.pk}/similar/", tool="search").results) == 1
    assert viewer.get(f"tool-calls/{call.pk}/similar/", created_before="2000-01-01").results == []


@pytest.mark.usefixtures("errors")
def test_errors_of_other_projects_and_of_the_trash_are_not_like_one(
    viewer: Caller, outsider: Caller, stranger: Project
) -> None:
    store(stranger, run("s", NOON, failed("secret", "timeout after 1 s")), external_id="s")
    call = Message.objects.get(external_id="one").calls.get(status="error")
    assert outsider.get(f"tool-calls/{call.pk}/similar/").status == 404
    writes.delete_message(primary, Message.objects.get(external_id="three").pk, by="ada")
    (own,) = viewer.get(f"tool-calls/{call.pk}/similar/").results
    assert (own["call_count"], own["last_example"]["error"]) == (2, "timeout after 7 s")
    writes.delete_message(primary, call.message_id, by="ada")
    assert viewer.get(f"tool-calls/{call.pk}/similar/").status == 404


@pytest.mark.usefixtures("errors")
def test_call_that_did_not_fail_has_no_similar_errors(viewer: Caller) -> None:
    call = Message.objects.get(external_id="one").calls.get(status="success")
    assert viewer.get(f"tool-calls/{call.pk}/similar/").error == (404, "not_found", None)
    assert viewer.get("tool-calls/x/similar/").status == 404
    assert viewer.get(f"tool-calls/{call.pk}/similar/?sort=count").error == (400, "invalid_input", "sort")


def test_new_and_rising_groups_are_marked(viewer: Caller, project: Project) -> None:
    def at(hours: int, *names: str) -> dict[str, Any]:
        return run(f"{hours}{names}", NOON + timedelta(hours=hours), *(failed("t", name) for name in names))

    def changes() -> dict[str, str]:
        return {group["pattern"]: group["change"] for group in viewer.get("errors/", **DAY).results}

    store(project, at(-11, "rising", "steady", "new"), at(1, *["rising"] * 5, "steady", "new"), at(2, "steady"))
    # Without earlier calls nothing is known to be new.
    assert changes() == {"rising": "rising", "steady": "steady", "new": "steady"}
    store(project, at(-40, "rising", "steady"))
    assert changes() == {"rising": "rising", "steady": "steady", "new": "new"}
    # A group is new in its first day.
    later = viewer.get("errors/", **DAY | {"created_before": "2026-03-03"}).results
    assert "new" not in {group["change"] for group in later}


def test_masked_values_are_in_no_group(viewer: Caller, project: Project) -> None:
    secret = "sk-ant-api03-" + "aB3" * 31 + "AA"
    store(project, run("a", NOON, failed("t", f"invalid key {secret} for model")))
    (group,) = viewer.get("errors/").results
    assert "aB3aB3" not in f"{group['pattern']} {group['last_example']['error']}"
    call = group["last_example"]["call"]
    assert "aB3aB3" not in str(viewer.get(f"tool-calls/{call}/similar/").json)
