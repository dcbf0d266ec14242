"""Statistics of tools are those of the rows, whatever was stored of them, and however they changed since."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from django.db import connection
from django.db.models import Count
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Change, ChangeReader, Message, Session
from messages_app.sql.pagination import IdRange
from sdk.tests.length import examples
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.changes import change_message
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance.costs import recompute_costs
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.tool_roll_up import RollUpReport, forget_dropped_periods, roll_up
from traces_app.models import ModelPrice, Tool, ToolCall, ToolPeriod, ToolRollUp
from traces_app.queries import tool_statistics
from traces_app.queries.histograms import ZERO, quantile, value_of
from traces_app.queries.tool_statistics import (
    ALL_CALLS,
    DAY,
    FEW,
    HOUR,
    STEPS,
    CallFilter,
    Figures,
    ToolFigures,
    cover,
    statistics,
)
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES

SHARES = (0.5, 0.95, 0.99)
numbers = count()


# --- Histograms -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**63 - 1))
def test_value_of_a_bucket_is_within_one_percent(milliseconds: int) -> None:
    bucket = math.ceil(math.log(milliseconds) / math.log(1.02))
    assert abs(value_of(bucket) - milliseconds) <= 0.01 * milliseconds


@pytest.mark.parametrize("milliseconds", range(1, 50))
def test_value_of_a_short_duration_is_exact(milliseconds: int) -> None:
    assert value_of(math.ceil(math.log(milliseconds) / math.log(1.02))) == milliseconds


def test_quantile_is_the_smallest_duration_of_that_share() -> None:
    assert quantile({ZERO: 1, 0: 1}, 0.5) == 0
    assert quantile({ZERO: 1, 0: 1}, 0.51) == 1
    assert quantile({}, 0.5) is None


# --- Cover ------------------------------------------------------------------------------------------------------------

instants = st.integers(0, 20 * 24 * 3600).map(lambda seconds: NOON + timedelta(seconds=seconds))
hours = instants.map(lambda instant: instant.replace(minute=0, second=0, microsecond=0))


@given(st.lists(instants, min_size=2, max_size=2, unique=True), st.sampled_from(STEPS[1:]), hours, st.sets(hours))
def test_cover_divides_a_range_without_gap_or_overlap(
    ends: list[datetime], step: timedelta, rolled_until: datetime, changed: set[datetime]
) -> None:
    begin, end = sorted(ends)
    spans = list(cover(begin, end, step, rolled_until, sorted(changed)))
    in_order = sorted(spans, key=lambda span: span.first)
    assert [in_order[0].first, *(span.after for span in in_order)] == [*(span.first for span in in_order), end]
    assert in_order[0].first == begin
    units = {"hour": HOUR, "day": DAY}
    for span in spans:
        assert (
            (span.first - ids.EPOCH) // step
            == span.slot
            == (span.after - timedelta(microseconds=1) - ids.EPOCH) // step
        )
        if span.unit in units:
            assert span.after <= rolled_until
            assert not any(span.first <= hour < span.after for hour in changed)
            assert (
                (span.first - ids.EPOCH) % units[span.unit]
                == timedelta()
                == (span.after - ids.EPOCH) % units[span.unit]
            )


# --- The property -----------------------------------------------------------------------------------------------------

minutes_ago = st.integers(0, 5 * 24 * 60)
durations = st.none() | st.integers(0, 60) | st.integers(0, 10**7)
tool_names = st.sampled_from(["search", "read"])
places = st.integers(0, 2)
calls = st.builds(
    lambda name, duration, success, parent: {
        "name": name,
        "duration": duration,
        **({} if success is None else {"result": {"success": success, "output": "", "error": "" if success else "no"}}),
        **({} if parent is None else {"parent": f"call_{parent}"}),
    },
    tool_names,
    durations,
    st.none() | st.booleans(),
    st.none() | st.integers(0, 5),
)
agents = st.sampled_from(["planner", "worker"])
models = st.sampled_from(["gpt-4o", "qwen-72b"])
steps = st.builds(
    lambda made, agent, model, cost: {
        "agent_name": agent,
        "model": model,
        "tool_calls": made,
        **({} if cost is None else {"cost": cost}),
    },
    st.lists(calls, min_size=1, max_size=4) | st.integers(0, 1000),
    agents,
    models,
    st.none() | st.sampled_from([0, 0.01, 0.5]),
)
stores = st.tuples(st.just("store"), places, minutes_ago, st.lists(steps, min_size=1, max_size=3))
operations = st.lists(
    stores
    | st.tuples(st.just("merge"), places, st.lists(steps, min_size=1, max_size=2))
    | st.tuples(st.sampled_from(["delete", "restore", "remove"]), places)
    | st.tuples(st.sampled_from(["delete_session", "restore_session", "clear"]))
    | st.tuples(st.just("purge"), minutes_ago)
    | st.tuples(st.just("empty_trash"))
    | st.tuples(st.just("roll_up"), st.integers(0, 4 * 24)),
    min_size=3,
    max_size=10,
)


def calls_of(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a step: as given, or more than FEW of a seed, because Hypothesis is slow with large values."""
    if isinstance(step["tool_calls"], list):
        return list(step["tool_calls"])
    random = Random(step["tool_calls"])
    return [call(int(random.lognormvariate(5, 2))) for _number in range(FEW + 1)]


def changed_hours() -> list[datetime]:
    """Return the hours that statistics read from rows although they are stored."""
    projects = Project.objects.values_list("pk", flat=True)
    until = tool_statistics._rolled_until(primary)
    return tool_statistics._changed_hours(primary, projects, ids.EPOCH + timedelta(hours=2), timezone.now(), until)


class Site:
    """A project with one session, to which operations are applied as users and producers do."""

    def __init__(self) -> None:
        self.project = Project.objects.create(slug=f"statistics-{next(numbers)}")
        self.now = timezone.now()

    def apply(self, name: str, *values: Any) -> None:
        getattr(self, name)(*values)

    def store(self, place: int, minutes: int, made: list[dict[str, Any]], **fields: Any) -> None:
        """Store a message with the steps, or with calls in one step, `made`."""
        of_step = made if "tool_calls" in made[0] else [{"tool_calls": made}]
        number = count()
        message = {
            "external_id": f"m{place}",
            "role": "assistant",
            "created_at": self.now - timedelta(minutes=minutes),
            "agent_steps": [
                {
                    **step,
                    "iteration": at,
                    "tool_calls": [{"id": f"call_{next(number)}", **made} for made in calls_of(step)],
                }
                for at, step in enumerate(of_step)
            ],
            **fields,
        }
        store(self.project, message, source="import", tags=["nightly"], end_user="ada")

    def merge(self, place: int, made: list[dict[str, Any]]) -> None:
        self.store(place, 0, made)

    def _messages(self, place: int) -> list[Message]:
        return list(Message.with_deleted.filter(project=self.project, external_id=f"m{place}"))

    def delete(self, place: int) -> None:
        for message in self._messages(place):
            if message.deleted_at is None and message.session.deleted_at is None:
                writes.delete_message(primary, message.pk, by="test")

    def restore(self, place: int) -> None:
        for message in self._messages(place):
            if message.deleted_at is not None and message.session.deleted_at is None:
                writes.restore_message(primary, message.pk)

    def remove(self, place: int) -> None:
        remove_messages(primary, [message.pk for message in self._messages(place)])

    def patch(self, place: int) -> None:
        for message in self._messages(place):
            steps = [{"iteration": 1, "tool_calls": [{"name": "read", "duration": 77, "result": {"output": "x"}}]}]
            patch = msgspec.convert({"agent_steps": steps}, records.MessagePatch)
            change_message(
                primary, [self.project.pk], message.pk, redact_message_patch(normalise_patch(patch), DEFAULT_RULES)
            )

    def delete_session_alone(self) -> None:
        for session in Session.objects.filter(project=self.project):
            writes.delete_session(primary, session.pk, by="test")

    def delete_session(self) -> None:
        writes.delete_sessions(primary, self.project.pk, None, by="test")

    def restore_session(self) -> None:
        for session in Session.with_deleted.deleted().filter(project=self.project):
            writes.restore_session(primary, session.pk)

    def clear(self) -> None:
        for session in Session.objects.filter(project=self.project):
            writes.clear_session(primary, session.pk, by="test")

    def purge(self, minutes: int) -> None:
        purge(primary, PurgeScope(created_before=self.now - timedelta(minutes=minutes), project_ids=(self.project.pk,)))

    def change_prices(self) -> None:
        ModelPrice.objects.create(model="m", input=7, output=7, as_of=NOON.date())
        assert [done.steps for done in recompute_costs(primary)] == [1]

    def empty_trash(self) -> None:
        purge(primary, PurgeScope(deleted_before=timezone.now(), project_ids=(self.project.pk,)))

    def roll_up(self, hours_ago: int) -> RollUpReport:
        return roll_up(primary, now=timezone.now() - timedelta(hours=hours_ago))


def exact(
    project: Project, begin: datetime | None, end: datetime | None, which: CallFilter
) -> dict[int, list[ToolCall]]:
    found: dict[int, list[ToolCall]] = defaultdict(list)
    for call in ToolCall.objects.filter(project=project).select_related("step", "message__session"):
        created_at = ids.created_at_of(call.pk)
        session = call.message.session
        if (
            (begin is None or created_at >= begin)
            and (end is None or created_at < end)
            and which.status in (None, call.status)
            and which.agent in (None, call.step.agent_name)
            and which.model in (None, call.step.model)
            and which.session_id in (None, session.pk)
            and which.end_user in (None, session.end_user)
            and set(which.tags) <= set(session.tags)
        ):
            found[call.tool_id].append(call)
    return found


def shares_of(project: Project) -> dict[UUID, float]:
    """Return the share of the cost of its step that each call has; calls without one are left out."""
    asked: dict[UUID, list[ToolCall]] = defaultdict(list)
    for call in ToolCall.with_deleted.filter(project=project).select_related("step", "parent"):
        if call.step.cost is not None and (call.parent is None or call.parent.step_id != call.step_id):
            asked[call.step_id].append(call)
    return {call.pk: float(call.step.cost or 0) / len(calls) for calls in asked.values() for call in calls}


def assert_exact(figures: Figures, found: list[ToolCall], shares: dict[UUID, float]) -> None:
    durations = sorted(call.duration_ms for call in found if call.duration_ms is not None)
    states = [call.status for call in found]
    costs = [shares[call.pk] for call in found if call.pk in shares]
    assert figures.calls == len(found)
    assert (figures.errors, figures.pending) == (states.count("error"), states.count("pending"))
    assert figures.timed_calls == len(durations)
    assert figures.longest_ms == max(durations, default=None)
    assert figures.total_ms == sum(durations)
    assert figures.priced_calls == len(costs)
    assert (figures.cost is None) == (not costs)
    assert float(figures.cost or 0) == pytest.approx(sum(costs), abs=1e-8)
    for share in SHARES:
        quantile = figures.quantile(share)
        if not durations:
            assert quantile is None
            continue
        true = durations[math.ceil(share * len(durations)) - 1]
        assert quantile is not None
        assert abs(quantile - true) <= (0 if figures.durations else 0.01 * true)


def assert_agrees(
    project: Project, begin: datetime | None, end: datetime | None, which: CallFilter = ALL_CALLS
) -> ToolFigures:
    tools = list(Tool.objects.filter(project=project).values_list("pk", flat=True))
    id_range = IdRange(lower=begin and ids.first_id_at(begin), upper=end and ids.first_id_at(end))
    found = statistics(primary, tools, [project.pk], id_range, which=which, with_histograms_of_steps=True)
    of_rows, shares = exact(project, begin, end, which), shares_of(project)
    assert found.by_tool.keys() == of_rows.keys()
    for tool_id, of_tool in of_rows.items():
        whole = found.by_tool[tool_id].whole
        assert_exact(whole, of_tool, shares)
        assert (whole.durations is not None) == (len(of_tool) <= FEW)
        steps = defaultdict(list)
        for call in of_tool:
            created_at = ids.created_at_of(call.pk)
            steps[created_at - (created_at - ids.EPOCH) % found.step].append(call)
        assert found.by_tool[tool_id].steps.keys() == steps.keys()
        assert steps.keys() <= set(found.beginnings())
        for step, of_step in steps.items():
            assert_exact(found.by_tool[tool_id].steps[step], of_step, shares)
    return found


@pytest.mark.django_db
@settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    before=st.lists(stores, min_size=1, max_size=4),
    done=operations,
    ranges=st.lists(st.tuples(minutes_ago, minutes_ago), min_size=1, max_size=3),
    status=st.none() | st.sampled_from(["success", "error", "pending"]),
    agent=agents,
    model=st.none() | models,
    tags=st.sampled_from([(), ("nightly",), ("nightly", "absent")]),
)
def test_statistics_are_exact_after_any_writes_and_roll_ups(
    db: None,
    before: list[tuple[Any, ...]],
    done: list[tuple[Any, ...]],
    ranges: list[tuple[int, int]],
    status: str | None,
    agent: str,
    model: str | None,
    tags: tuple[str, ...],
) -> None:
    for table in (ToolPeriod, ToolRollUp, Change, ChangeReader):
        table._default_manager.all().delete()
    site = Site()
    filters = [CallFilter(status=status), CallFilter(status=status, agent=agent, model=model, tags=tags)]
    for operation in [*before, ("roll_up", 0), *done]:
        site.apply(*operation)
        assert_agrees(site.project, None, None, filters[0])
        for one, other in ranges:
            after, before = (site.now - timedelta(minutes=minutes) for minutes in sorted((one, other), reverse=True))
            if after < before:
                assert_agrees(site.project, after, before, filters[0])
    assert_agrees(site.project, None, None, filters[1])


# --- What the property cannot reach -----------------------------------------------------------------------------------


@pytest.fixture
def site(db: None) -> Iterator[Site]:
    yield Site()


def call(duration: int = 10) -> dict[str, Any]:
    return {"name": "search", "duration": duration, "result": {"output": "x"}}


@pytest.mark.parametrize(
    "changes",
    [
        [("store", 1, 1500, [{"name": "search", "duration": 7}])],
        [("store", 1, 5000, [{"name": "search"}, {"name": "read", "duration": 3}])],
        [("patch", 0)],
        [("delete", 0), ("restore", 0)],
        [("delete_session",), ("restore_session",)],
        [("delete_session_alone",), ("restore_session",)],
        [("clear",), ("restore", 0)],
        [("remove", 0)],
        [("purge", 2000)],
        [("delete", 0), ("empty_trash",)],
        [("delete_session",), ("empty_trash",)],
        [("change_prices",)],
    ],
    ids=lambda changes: "-".join(change[0] for change in changes),
)
def test_statistics_are_right_before_and_after_each_roll_up(site: Site, changes: list[tuple[Any, ...]]) -> None:
    site.store(0, 3000, [call(), {"name": "read"}], is_completed=False)
    unpriced = {"model": "m", "usage": {"prompt_tokens": 1000, "completion_tokens": 10}}
    site.store(2, 1500, [{"tool_calls": [call(30), call(9)], **unpriced}])
    for change in changes:
        site.roll_up(0)
        assert_agrees(site.project, None, None)
        site.apply(*change)
        assert_agrees(site.project, None, None)
    site.roll_up(0)
    assert not changed_hours()
    assert_agrees(site.project, None, None)


def test_stored_days_are_read_instead_of_rows(site: Site) -> None:
    site.store(1, 4 * 24 * 60, [call(), call(20)])
    site.roll_up(0)
    assert ToolPeriod.objects.filter(project=site.project, unit="day").aggregate(n=Count("pk"))["n"] == 1
    # Behind the back of the writes that log changes: who still reads rows would notice.
    ToolCall.with_deleted.filter(project=site.project).update(duration_ms=99)
    (found,) = statistics(
        primary, list(Tool.objects.values_list("pk", flat=True)), [site.project.pk], IdRange()
    ).by_tool.values()
    assert (found.whole.calls, found.whole.longest_ms) == (2, 20)


def test_young_hours_are_read_from_rows(site: Site) -> None:
    site.store(1, 30, [call()])
    site.roll_up(0)
    site.store(1, 30, [call(), call()])
    site.delete(1)
    site.delete_session()
    assert not changed_hours()


def test_import_changes_each_hour_once(site: Site) -> None:
    steps = [{"iteration": 0, "tool_calls": [call()]}]
    messages = [
        {"external_id": f"x{at}", "role": "assistant", "agent_steps": steps,
         "created_at": site.now.replace(minute=at) - timedelta(hours=10 + at % 2)}
        for at in range(20)
    ]  # fmt: skip
    site.store(1, 1500, [call()])
    site.roll_up(0)
    store(site.project, *messages, source="import")
    assert len(changed_hours()) == 2
    assert site.roll_up(0).changed == 2


def test_roll_up_computes_changed_hours_again_once(site: Site) -> None:
    site.store(1, 600, [call()])
    site.store(2, 900, [call()])
    assert roll_up(primary).hours == 2
    assert not changed_hours()
    site.store(1, 600, [call(), call()])
    assert len(changed_hours()) == 1
    report = roll_up(primary)
    assert (report.hours, report.changed, changed_hours()) == (0, 1, [])


def test_periods_of_a_dropped_month_are_deleted(site: Site) -> None:
    ToolPeriod.objects.create(
        project=site.project, tool=Tool.objects.create(project=site.project, name="gone"), unit="hour", status="success",
        begin=datetime(2001, 5, 1, tzinfo=UTC), calls=1, timed_calls=0, total_ms=0, priced_calls=0, buckets=[], counts=[],
    )  # fmt: skip
    forget_dropped_periods(primary)
    assert not ToolPeriod.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_month_that_a_purge_drops_leaves_no_statistics(project: Project) -> None:
    old = {"role": "assistant", "created_at": datetime(2024, 1, 10, 5, tzinfo=UTC)}
    kept = {"role": "assistant", "created_at": datetime(2024, 2, 10, 5, tzinfo=UTC)}
    steps = [{"iteration": 0, "tool_calls": [call()]}]
    store(
        project, {"external_id": "a", "agent_steps": steps, **old}, {"external_id": "b", "agent_steps": steps, **kept}
    )
    assert roll_up(primary).hours == 2
    report = purge(primary, PurgeScope(created_before=datetime(2024, 2, 1, tzinfo=UTC)))
    assert "2024-01" in report.periods  # older empty months of other tests are dropped, too
    assert_agrees(project, None, None)
    assert set(ToolPeriod.objects.values_list("begin__month", flat=True)) == {2}


@pytest.mark.django_db(transaction=True)
def test_hour_is_computed_again_after_a_write_that_commits_late(site: Site) -> None:
    site.store(0, 600, [call()])
    site.store(1, 600, [call()])  # in the same hour whatever the time is
    with psycopg.connect(**connection.get_connection_params()) as other:
        # Behind the back of the roll-up, as a slow writer.
        other.execute("UPDATE traces_app_toolcall SET duration_ms = 7 WHERE project_id = %s", [site.project.pk])
        other.execute(
            "INSERT INTO messages_app_change (project_id, message_id, kind) SELECT project_id, id, 'content' "
            "FROM messages_app_message WHERE project_id = %s",
            [site.project.pk],
        )
        assert roll_up(primary).hours == 1
        other.commit()
    assert_agrees(site.project, None, None)
    assert roll_up(primary).changed == 1
    assert_agrees(site.project, None, None)


@pytest.mark.django_db(transaction=True)
def test_roll_up_that_is_killed_between_hours_continues(site: Site) -> None:
    for at in range(3):
        site.store(at, 600 + 60 * at, [call(at)])
    steps = iter([False, False, True])
    assert roll_up(primary, is_stopped=lambda: next(steps)).hours == 1
    assert_agrees(site.project, None, None)
    assert roll_up(primary).hours == 2
    assert_agrees(site.project, None, None)


@pytest.mark.django_db(transaction=True)
def test_two_roll_ups_at_once_store_each_hour_once(site: Site) -> None:
    for at in range(3):
        site.store(at, 600 + 200 * at, [call(at)])

    def run(_number: int) -> int:
        try:
            return roll_up(primary).hours
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        stored = sum(pool.map(run, range(3)))
    assert stored + roll_up(primary).hours == 3
    assert_agrees(site.project, None, None)
