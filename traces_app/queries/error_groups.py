"""Groups of equal errors: failed calls by the pattern of their error, with what a look at each needs.

The newest failed calls are read, up to MOST_READ, and to MOST_CHARACTERS of errors of which no pattern is stored, so that a range with
millions of them takes no longer than some seconds, whatever their errors are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import merge
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Expression, F
from django.db.models.functions import MD5
from django.utils import timezone
from msgspec import UNSET

from access_app.db import Database
from access_app.readable import ReadableRows
from messages_app.sql.batch import LIST_MS, Query, Row, fetch
from messages_app.sql.beginnings import Beginning
from messages_app.sql.pagination import IdRange, ListRows
from messages_app.sql.snapshot import one_snapshot
from messages_app.timestamps import instant_text
from traces_app.models import Tool, ToolCall
from tracesite_sdk.records import ids

from .error_patterns import with_costs, with_patterns
from .run_vectors import LEAST_LIKENESS, likeness_of_errors
from .schemas.errors import ErrorChange, ErrorExample, ErrorGroup, ErrorGroups, ErrorSort, ErrorStep, ErrorTool
from .tool_statistics import MOST_POINTS, STEPS

T = TypeVar("T")

MOST_READ = 20_000
"""Failed calls that are grouped, the newest ones of the range."""
MOST_CHARACTERS = 2_000_000
"""Characters of the errors of these of which patterns have to be made: 100 of each call, or 2,000 errors of 1,000."""
MOST_KNOWN = 2_000
"""Failed calls before a range, the newest ones, among which an error of the range is searched before it is called new."""
MOST_KNOWN_CHARACTERS = 200_000
"""Characters of the errors of these of which patterns have to be made."""
MOST_RANKED = 1_000
"""Groups among which those like an error are searched: those of most calls."""
LEAST_RISING = 5
"""Calls in the second half of a range from which on a group can be rising."""
TOOLS_LISTED = 10
EXAMPLE_CHARACTERS = 1_000
_ORDER: dict[ErrorSort, str] = {
    "count": "sum(calls) DESC, max(last) DESC",
    "last_seen": "max(last) DESC",
    "first_seen": "min(first) DESC, max(last) DESC",
}
_IN_ORDER: dict[ErrorSort, Callable[[Row], Any]] = {
    "count": lambda group: (-group[2], -group[4].int),
    "last_seen": lambda group: -group[4].int,
    "first_seen": lambda group: (-group[3].int, -group[4].int),
}
"""The same for groups that were read of several databases."""
# Texts of ids sort like ids, and PostgreSQL has no max() of ids before version 18.
_GROUPED = """
    WITH part AS (
        SELECT pattern, tool_id, width_bucket(id, %s::uuid[]) AS step, count(*) AS calls, min(id::text) AS first,
            max(id::text) AS last
        FROM ({failed}) AS failed (id, tool_id, pattern) GROUP BY pattern, tool_id, step
    )
    SELECT md5(pattern), pattern, sum(calls)::bigint, min(first)::uuid, max(last)::uuid, array_agg(tool_id),
        array_agg(step), array_agg(calls), count(*) OVER (), (sum(sum(calls)) OVER ())::bigint,
        (min(min(first)) OVER ())::uuid
    FROM part GROUP BY pattern ORDER BY {order} LIMIT {limit:d}
    """
_PATTERNS = "SELECT DISTINCT md5(pattern) FROM ({failed}) AS failed (id, tool_id, pattern)"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Failed calls whose errors have the same pattern."""

    id: str
    """32 hexadecimal digits, for the filter `error_group` of calls."""
    pattern: str
    """For a reader of masked values the error of the example."""
    calls: int
    first: UUID
    """The oldest call in the range."""
    last: UUID
    tools: Sequence[tuple[Tool, int]]
    """Those of most calls with the number of these, at most TOOLS_LISTED. The project of a tool is read with it."""
    tool_count: int
    steps: Counter[datetime]
    """The number of calls by the beginning of the step."""
    example: ToolCall
    """The newest call with its message, tool and project."""
    error: str
    """The first EXAMPLE_CHARACTERS of the error of the example."""
    change: ErrorChange
    """`new` if none of the newest failed calls before the range, of which there are some, has an equal error: MOST_KNOWN of them,
    or fewer if the patterns of many long errors are not stored."""
    likeness: float | None
    """How similar the pattern is to the given one, 0 to 1; None if none was given."""

    @property
    def first_at(self) -> datetime:
        return ids.created_at_of(self.first)

    @property
    def last_at(self) -> datetime:
        return ids.created_at_of(self.last)


@dataclass(frozen=True, kw_only=True)
class CountedGroups:
    """Groups, and what all groups of the range add up to."""

    groups: Sequence[Group]
    group_count: int
    calls: int
    counted_from: datetime | None
    """The time of the oldest call that was read; None if all were."""
    step: timedelta
    beginnings: Sequence[datetime]
    """The beginnings of all steps of the range, oldest first, also of those without calls."""


def error_groups(
    rows: ReadableRows[ListRows],
    sort: ErrorSort,
    limit: int,
    *,
    like: str | None = None,
    marks_new: bool = True,
) -> CountedGroups:
    """Return the first `limit` groups of the failed calls in `rows`, in seven queries or fewer of each database.

    With `like`, a pattern: the groups that are most like it, the most similar ones first. Without `marks_new` no group is
    marked as new, which saves a query. Raise InvalidInput if a query takes longer than LIST_MS.
    """
    with ExitStack() as snapshots:
        rows.each(lambda part: snapshots.enter_context(one_snapshot(part.db, read_only=True)))
        step, beginnings = _steps(rows)
        newest, is_cut = _newest(rows, MOST_READ, MOST_CHARACTERS)
        grouped = _grouped(newest, sort, limit if like is None else MOST_RANKED, beginnings)
        group_count, calls, oldest = grouped[0][8:] if grouped else (0, 0, None)
        likeness: dict[str, float] = {}
        if like is not None:
            scores = likeness_of_errors(like, [row[1] for row in grouped])
            likeness = {row[0]: score for row, score in zip(grouped, scores, strict=True) if score >= LEAST_LIKENESS}
            grouped = sorted((row for row in grouped if row[0] in likeness), key=lambda row: -likeness[row[0]])[:limit]
        tool_ids, last = {tool for row in grouped for tool in row[5]}, [row[4] for row in grouped]
        tools, examples = (
            _found_in_any(rows, lambda db: _tools(db, tool_ids)),
            _found_in_any(rows, lambda db: _examples(db, last)),
        )
        known = _known_before(rows) if grouped and marks_new else None
    counted_from = ids.created_at_of(oldest) if is_cut else None
    return CountedGroups(
        groups=[
            _group(
                row,
                tools,
                examples,
                beginnings,
                counted_from,
                is_new=known is not None and row[0] not in known,
                likeness=likeness.get(row[0]),
                is_masked=any(rows.each(lambda part: part.db.read_connection.mask is not None)),
            )
            for row in grouped
        ],
        group_count=group_count,
        calls=calls,
        counted_from=counted_from,
        step=step,
        beginnings=beginnings,
    )


def pattern_of_call(db: Database, call_id: UUID) -> str | None:
    """Return the pattern of the error of a call; None if it did not fail."""
    return _of_failed(db, call_id, F("pattern"))


def group_of_call(db: Database, call_id: UUID) -> str | None:
    """Return the id of the group of the error of a call; None if it did not fail."""
    return _of_failed(db, call_id, MD5("pattern"))


def _of_failed(db: Database, call_id: UUID, value: F | Expression) -> str | None:
    calls = db.rows(ToolCall.with_deleted).filter(pk=call_id, status=ToolCall.Status.ERROR)
    of_call = with_patterns(calls, IdRange(lower=call_id, upper=UUID(int=call_id.int + 1)))
    _id, text = of_call.values_list("pk", value).first() or (None, None)
    return text


def answer_of(groups: CountedGroups) -> ErrorGroups:
    """Return the groups in the form of the API."""
    return ErrorGroups(
        results=[_group_schema(group) for group in groups.groups],
        group_count=groups.group_count,
        call_count=groups.calls,
        counted_from=None if groups.counted_from is None else instant_text(groups.counted_from),
        trend_step=int(groups.step.total_seconds()),
    )


def _grouped(rows: ReadableRows[ListRows], sort: ErrorSort, limit: int, beginnings: Sequence[datetime]) -> list[Row]:
    # A group of one database may be in another, too, so those of several are read whole.
    is_one = len(rows.parts) == 1
    parts = rows.each(lambda part: _grouped_in(part, sort, limit if is_one else MOST_READ, beginnings))
    if is_one:
        return next(iter(parts))
    groups: dict[str, Row] = {}
    for group in (row[:8] for part in parts for row in part):
        known = groups.get(group[0])
        groups[group[0]] = group if known is None else _added(known, group)
    whole = (
        len(groups),
        sum(group[2] for group in groups.values()),
        min((group[3] for group in groups.values()), default=None),
    )
    return [(*group, *whole) for group in sorted(groups.values(), key=_IN_ORDER[sort])[:limit]]


def _added(left: Row, right: Row) -> Row:
    """Return a group of two databases."""
    key, pattern, calls, first, last, *arrays = left
    return (
        *(key, pattern, calls + right[2], min(first, right[3]), max(last, right[4])),
        *([*mine, *theirs] for mine, theirs in zip(arrays, right[5:], strict=True)),
    )


def _newest(rows: ReadableRows[ListRows], most: int, most_characters: int) -> tuple[ReadableRows[ListRows], bool]:
    """Return the newest of the rows, up to `most` of all databases and to `most_characters` of their errors, and whether there are
    more. At least one."""
    parts = rows.each(lambda part: _costs_in(part, most + 1))
    oldest, left = None, most_characters
    for number, (key, cost) in enumerate(merge(*parts, reverse=True)):
        left -= cost
        if oldest is not None and (number == most or left < 0):
            return rows.within(IdRange(lower=oldest)), True
        oldest = key
    return rows, False


def _costs_in(rows: ListRows, most: int) -> list[Row]:
    costs = with_costs(rows.queryset, rows.ids).order_by("-pk").values_list("pk", F("cost"))
    (costs_read,) = fetch(rows.db, [Query.of(costs[:most])], at_most_ms=LIST_MS)
    return costs_read


def _found_in_any(rows: ReadableRows[ListRows], find: Callable[[Database], Mapping[Any, T]]) -> dict[Any, T]:
    """Return what has ids of any of the databases."""
    return {key: value for part in rows.each(lambda part: find(part.db)) for key, value in part.items()}


def _grouped_in(rows: ListRows, sort: ErrorSort, limit: int, beginnings: Sequence[datetime]) -> list[Row]:
    failed = _failed(rows)
    sql = _GROUPED.format(failed=failed.sql, order=_ORDER[sort], limit=limit)
    firsts = [ids.first_id_at(begin) for begin in beginnings]
    (groups,) = fetch(rows.db, [Query(sql=sql, parameters=[firsts, *failed.parameters])], at_most_ms=LIST_MS)
    return groups


def _known_before(rows: ReadableRows[ListRows]) -> set[str] | None:
    """Return the groups of the newest failed calls before the range; None if there are no such calls."""
    lower = _range_of(rows).lower
    if lower is None:
        return None
    before = rows.map(lambda part: replace(part, ids=IdRange(upper=lower)))
    newest, _is_cut = _newest(before, MOST_KNOWN, MOST_KNOWN_CHARACTERS)
    return set().union(*newest.each(_groups_in)) or None


def _groups_in(rows: ListRows) -> set[str]:
    failed = _failed(rows)
    (patterns,) = fetch(
        rows.db, [Query(sql=_PATTERNS.format(failed=failed.sql), parameters=failed.parameters)], at_most_ms=LIST_MS
    )
    return {row[0] for row in patterns}


def _range_of(rows: ReadableRows[ListRows]) -> IdRange:
    """Return the range of the rows, which is the same in each database."""
    return next(iter(rows.parts.values())).ids


def _failed(rows: ListRows) -> Query:
    """Return the statement for the id, the tool and the pattern of each of the failed calls."""
    failed = with_patterns(rows.queryset, rows.ids).order_by()
    return Query.of(failed.values_list("pk", "tool_id", F("pattern")))


def _steps(rows: ReadableRows[ListRows]) -> tuple[timedelta, list[datetime]]:
    """Return the length of a step, and the beginnings of the steps from the first failed call or the given time on."""
    range_ = _range_of(rows)
    end = timezone.now()  # calls that are ahead of our clock belong to the last step
    if range_.upper is not None:
        end = min(end, ids.created_at_of(range_.upper))
    if range_.lower is not None:
        begin = ids.created_at_of(range_.lower)
    else:
        oldest = rows.keys(newest_first=False, limit=1)
        begin = ids.created_at_of(oldest[0]) if oldest else end
    begin = min(begin, end - timedelta(microseconds=1))
    step = next((step for step in STEPS if (end - begin) / step <= MOST_POINTS), STEPS[-1])
    first, last = (begin - ids.EPOCH) // step, (end - timedelta(microseconds=1) - ids.EPOCH) // step
    return step, [ids.EPOCH + number * step for number in range(first, last + 1)]


def _tools(db: Database, keys: Collection[int]) -> dict[int, Tool]:
    return db.rows(Tool.objects).select_related("project").in_bulk(keys)


def _examples(db: Database, keys: Collection[UUID]) -> dict[UUID, ToolCall]:
    if not keys:
        return {}
    calls = (
        db.rows(ToolCall.with_deleted)
        .select_related("message", "tool__project")
        .filter(pk__in=keys, pk__gte=min(keys), pk__lte=max(keys))
    )
    shown = calls.annotate(error_text=Beginning("result__error", EXAMPLE_CHARACTERS))
    return {call.pk: call for call in shown.only("message__session_id", "tool__name", "tool__project__slug")}


def _is_rising(steps: Counter[datetime], beginnings: Sequence[datetime], since: datetime | None) -> bool:
    """Compare the two halves of the range, as far as it was read."""
    read = [begin for begin in beginnings if since is None or begin >= since]
    half = len(read) // 2
    earlier, later = sum(steps[begin] for begin in read[:half]), sum(steps[begin] for begin in read[half:])
    return bool(half) and later >= max(LEAST_RISING, 2 * earlier)


def _group(
    row: Sequence[Any],
    tools: dict[int, Tool],
    examples: dict[UUID, ToolCall],
    beginnings: Sequence[datetime],
    counted_from: datetime | None,
    *,
    is_new: bool,
    likeness: float | None,
    is_masked: bool,
) -> Group:
    key, pattern, calls, first, last, tool_ids, steps, counts = row[:8]
    of_tools: Counter[int] = Counter()
    of_steps: Counter[datetime] = Counter()
    for tool_id, step, count in zip(tool_ids, steps, counts, strict=True):
        of_tools[tool_id] += count
        of_steps[beginnings[step - 1]] += count
    most_called = sorted(of_tools.items(), key=lambda tool: (-tool[1], tool[0]))
    error = getattr(examples[last], "error_text", None) or ""  # None without a result
    return Group(
        id=key,
        # What a rule hides may not fit it any more where a pattern has "#".
        pattern=error if is_masked else pattern,
        calls=calls,
        first=first,
        last=last,
        tools=[(tools[tool_id], count) for tool_id, count in most_called[:TOOLS_LISTED]],
        tool_count=len(of_tools),
        steps=of_steps,
        example=examples[last],
        error=error,
        change="new" if is_new else "rising" if _is_rising(of_steps, beginnings, counted_from) else "steady",
        likeness=likeness,
    )


def _group_schema(group: Group) -> ErrorGroup:
    return ErrorGroup(
        id=group.id,
        pattern=group.pattern,
        call_count=group.calls,
        first_seen_at=instant_text(group.first_at),
        last_seen_at=instant_text(group.last_at),
        tools=[ErrorTool(name=tool.name, project=tool.project.slug, call_count=count) for tool, count in group.tools],
        tool_count=group.tool_count,
        last_example=ErrorExample(
            call=str(group.example.pk),
            message_id=str(group.example.message_id),
            session_id=str(group.example.message.session_id),
            tool=group.example.tool.name,
            project=group.example.tool.project.slug,
            error=group.error,
            created_at=instant_text(group.last_at),
        ),
        trend=[ErrorStep(begin=instant_text(begin), call_count=count) for begin, count in sorted(group.steps.items())],
        change=group.change,
        score=UNSET if group.likeness is None else group.likeness,
    )
