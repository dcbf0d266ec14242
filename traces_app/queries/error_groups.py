"""Groups of equal errors: failed calls by the pattern of their error, with what a look at each needs.

The newest failed calls are read, up to MOST_READ, and to MOST_CHARACTERS of errors of which no pattern is stored, so that a range with
millions of them takes no longer than some seconds, whatever their errors are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import merge
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db.models import Count, Expression, F, QuerySet
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
from .tool_statistics import steps_between

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
"""Groups among which those like an error, or those to keep, are searched: the first ones."""
IS_NEW = timedelta(days=1)
"""For how long a group is new."""
LEAST_RISING = 5
"""Calls in the second half of a range from which on a group can be rising."""
TOOLS_LISTED = 10
END_USERS_LISTED = 10
EXAMPLE_CHARACTERS = 1_000


class _Row(NamedTuple):
    """A group as it is read."""

    key: str
    pattern: str
    calls: int
    first: UUID
    last: UUID
    tool_name: str
    projects: list[int]
    """Of the calls of one tool in one step, as is each of the following."""
    tools: list[int]
    steps: list[int]
    counts: list[int]
    lasts: list[UUID]
    users: list[list[int] | None]
    """Hashes of their end users."""
    group_count: int
    all_calls: int

    @property
    def last_calls(self) -> dict[int, UUID]:
        """The last call by the id of the project."""
        found: dict[int, UUID] = {}
        for project, last in zip(self.projects, self.lasts, strict=True):
            found[project] = max(last, found.get(project, last))
        return found


_ORDER: dict[ErrorSort, str] = {
    "count": "sum(calls) DESC, max(last) DESC",
    "last_seen": "max(last) DESC",
    "first_seen": "min(first) DESC, max(last) DESC",
    "tool": 'min(tool.name COLLATE "C"), max(last) DESC',
}
_IN_ORDER: dict[ErrorSort, Callable[[_Row], Any]] = {
    "count": lambda row: (-row.calls, -row.last.int),
    "last_seen": lambda row: -row.last.int,
    "first_seen": lambda row: (-row.first.int, -row.last.int),
    "tool": lambda row: (row.tool_name, -row.last.int),
}
"""The same for groups that were read of several databases."""
# Texts of ids sort like ids, and PostgreSQL has no max() of ids before version 18.
# End users are counted by hashes, so that no names are sent; as JSON, because arrays of different lengths are no array.
_GROUPED = """
    WITH part AS (
        SELECT pattern, project_id, tool_id, width_bucket(id, %s::uuid[]) AS step, count(*) AS calls, min(id::text) AS first,
            max(id::text) AS last, json_agg(DISTINCT hashtextextended(end_user, 0)) FILTER (WHERE end_user <> '') AS users
        FROM ({failed}) AS failed (id, project_id, tool_id, pattern, end_user) GROUP BY pattern, project_id, tool_id, step
    )
    SELECT md5(pattern), pattern, sum(calls)::bigint, min(first)::uuid, max(last)::uuid, min(tool.name COLLATE "C"),
        array_agg(part.project_id), array_agg(tool_id), array_agg(step), array_agg(calls), array_agg(last::uuid),
        json_agg(users), count(*) OVER (), (sum(sum(calls)) OVER ())::bigint
    FROM part JOIN traces_app_tool AS tool ON tool.id = tool_id GROUP BY pattern ORDER BY {order} LIMIT {limit:d}
    """
_FIRST = """
    SELECT md5(pattern), min(id::text)::uuid FROM ({failed}) AS failed (id, project_id, tool_id, pattern, end_user)
    WHERE md5(pattern) = ANY(%s) GROUP BY 1
    """
_PATTERNS = "SELECT DISTINCT md5(pattern) FROM ({failed}) AS failed (id, project_id, tool_id, pattern, end_user)"


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
    end_user_count: int
    last_calls: Mapping[int, UUID]
    """The last call in the range by the id of the project."""
    steps: Counter[datetime]
    """The number of calls by the beginning of the step."""
    example: ToolCall
    """The newest call with its message, tool and project."""
    error: str
    """The first EXAMPLE_CHARACTERS of the error of the example."""
    change: ErrorChange
    """`new` on its first day, if none of the newest failed calls before the range, of which there are some, has an equal error:
    MOST_KNOWN of them, or fewer if the patterns of many long errors are not stored."""
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
    words: Sequence[str] = (),
    keep: Callable[[str, Mapping[int, UUID]], bool] | None = None,
    marks_new: bool = True,
) -> CountedGroups:
    """Return the first `limit` groups of the failed calls in `rows`, in seven queries or fewer of each database.

    With `like`, a pattern: the groups that are most like it, the most similar ones first. With `words`: those whose pattern has
    all of them. With `keep`: those for which it is true of their id and last calls. Without `marks_new` no group is marked as
    new, which saves a query. Raise InvalidInput if a query takes longer than LIST_MS.
    """
    with ExitStack() as snapshots:
        rows.each(lambda part: snapshots.enter_context(one_snapshot(part.db, read_only=True)))
        step, beginnings = _steps(rows)
        newest, is_cut = _newest(rows, MOST_READ, MOST_CHARACTERS)
        grouped = _grouped(newest, sort, limit if like is None and keep is None else MOST_RANKED, beginnings, words)
        group_count, calls = grouped[0][-2:] if grouped else (0, 0)
        likeness: dict[str, float] = {}
        if like is not None:
            scores = likeness_of_errors(like, [row.pattern for row in grouped])
            likeness = {row.key: score for row, score in zip(grouped, scores, strict=True) if score >= LEAST_LIKENESS}
            grouped = sorted((row for row in grouped if row.key in likeness), key=lambda row: -likeness[row.key])
        if keep is not None:
            kept = [row for row in grouped if keep(row.key, row.last_calls)]
            group_count -= len(grouped) - len(kept)
            calls -= sum(row.calls for row in grouped) - sum(row.calls for row in kept)
            grouped = kept
        grouped = grouped[:limit]
        tool_ids, last = {tool for row in grouped for tool in row.tools}, [row.last for row in grouped]
        tools, examples = (
            _found_in_any(rows, lambda db: _tools(db, tool_ids)),
            _found_in_any(rows, lambda db: _examples(db, last)),
        )
        new = _new(rows, grouped) if marks_new else set()
    oldest = _range_of(newest).lower
    counted_from = ids.created_at_of(oldest) if is_cut and oldest is not None else None
    return CountedGroups(
        groups=[
            _group(
                row,
                tools,
                examples,
                beginnings,
                counted_from,
                is_new=row.key in new,
                likeness=likeness.get(row.key),
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


def facets(rows: ReadableRows[ListRows], words: Sequence[str] = ()) -> Counter[tuple[str, str]]:
    """Return the number of failed calls by tool and agent, of those that `error_groups` counts. Two queries of each database.

    Raise InvalidInput if one takes longer than LIST_MS.
    """
    newest, _is_cut = _newest(rows, MOST_READ, MOST_CHARACTERS)
    return _counted(newest, words, ("tool__name", "step__agent_name"))


def end_users(rows: ReadableRows[ListRows], group: Group) -> list[tuple[str, int]]:
    """Return the end users with most calls of a group, which is one of these rows. One query of each database."""
    counts = _counted(_of_group(rows, group), (), ("run__session__end_user",), group=group.id)
    return [(name, calls) for (name,), calls in counts.most_common() if name][:END_USERS_LISTED]


def newest_calls(rows: ReadableRows[ListRows], group: Group, limit: int) -> list[tuple[Database, UUID, UUID]]:
    """Return the newest calls of a group, which is one of these rows, at most `limit`: the database, the call and its message, the newest
    first. One query of each database. Raise InvalidInput if one takes longer than LIST_MS."""
    found = []
    for part in _of_group(rows, group).parts.values():
        calls = _in_group(part, group.id).order_by("-pk").filter(**part.ids.periods_of("step__id"))
        (keys,) = fetch(part.db, [Query.of(calls.values_list("pk", "message_id")[:limit])], at_most_ms=LIST_MS)
        found += [(part.db, call, message) for call, message in keys]
    return sorted(found, key=lambda one: one[1], reverse=True)[:limit]


def first_calls(rows: ReadableRows[ListRows], found: CountedGroups) -> tuple[dict[str, UUID], datetime | None]:
    """Return the first call of each of the groups, which were found in `rows`, also before their range, and since when all failed calls
    were read for it; None if all ever were. Of the calls before, the newest MOST_READ are read. Two queries of each database.

    Raise InvalidInput if one takes longer than LIST_MS.
    """
    firsts = {group.id: group.first for group in found.groups}
    lower = _range_of(rows).lower
    if found.counted_from is not None:
        lower = ids.first_id_at(found.counted_from)
    if lower is None or not firsts:
        return firsts, None
    before, is_cut = _newest(rows.map(lambda part: replace(part, ids=IdRange(upper=lower))), MOST_READ, MOST_CHARACTERS)
    for part in before.parts.values():
        failed = _failed(part)
        query = Query(sql=_FIRST.format(failed=failed.sql), parameters=[*failed.parameters, list(firsts)])
        (earlier,) = fetch(part.db, [query], at_most_ms=LIST_MS)
        for group, first in earlier:
            firsts[group] = min(first, firsts[group])
    oldest = _range_of(before).lower
    return firsts, ids.created_at_of(oldest) if is_cut and oldest is not None else None


def _of_group(rows: ReadableRows[ListRows], group: Group) -> ReadableRows[ListRows]:
    return rows.within(IdRange(lower=group.first, upper=UUID(int=group.last.int + 1)))


def _in_group(rows: ListRows, group: str) -> QuerySet[Any]:
    """Return the failed calls of a group."""
    calls: QuerySet[Any] = _with_words(rows, ()).alias(error_group=MD5("pattern"))
    return calls.filter(error_group=group)


def _counted(
    rows: ReadableRows[ListRows], words: Sequence[str], columns: Sequence[str], *, group: str | None = None
) -> Counter[Any]:
    """Return the number of failed calls by the values of columns."""
    counts: Counter[Any] = Counter()
    for part in rows.parts.values():
        failed = part.queryset
        if group is not None:
            failed = _in_group(part, group)
        elif words:
            failed = _with_words(part, words)
        failed = failed.order_by().filter(**part.ids.periods_of("step__id"))
        found = Query.of(failed.values(*columns).annotate(calls=Count("pk")).values_list(*columns, "calls")[:MOST_READ])
        (values,) = fetch(part.db, [found], at_most_ms=LIST_MS)
        for *key, calls in values:
            counts[tuple(key)] += calls
    return counts


def _grouped(
    rows: ReadableRows[ListRows], sort: ErrorSort, limit: int, beginnings: Sequence[datetime], words: Sequence[str]
) -> list[_Row]:
    # A group of one database may be in another, too, so those of several are read whole.
    is_one = len(rows.parts) == 1
    parts = rows.each(lambda part: _grouped_in(part, sort, limit if is_one else MOST_READ, beginnings, words))
    if is_one:
        return next(iter(parts))
    groups: dict[str, _Row] = {}
    for group in (row for part in parts for row in part):
        known = groups.get(group.key)
        groups[group.key] = group if known is None else _added(known, group)
    whole: dict[str, Any] = {
        "group_count": len(groups),
        "all_calls": sum(group.calls for group in groups.values()),
    }
    return [group._replace(**whole) for group in sorted(groups.values(), key=_IN_ORDER[sort])[:limit]]


def _added(left: _Row, right: _Row) -> _Row:
    """Return a group of two databases."""
    names = ("projects", "tools", "steps", "counts", "lasts", "users")
    arrays: dict[str, Any] = {name: [*getattr(left, name), *getattr(right, name)] for name in names}
    return left._replace(
        calls=left.calls + right.calls,
        first=min(left.first, right.first),
        last=max(left.last, right.last),
        tool_name=min(left.tool_name, right.tool_name),
        **arrays,
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


def _grouped_in(
    rows: ListRows, sort: ErrorSort, limit: int, beginnings: Sequence[datetime], words: Sequence[str]
) -> list[_Row]:
    failed = _failed(rows, words)
    sql = _GROUPED.format(failed=failed.sql, order=_ORDER[sort], limit=limit)
    firsts = [ids.first_id_at(begin) for begin in beginnings]
    (groups,) = fetch(rows.db, [Query(sql=sql, parameters=[firsts, *failed.parameters])], at_most_ms=LIST_MS)
    return [_Row(*group) for group in groups]


def _new(rows: ReadableRows[ListRows], groups: Iterable[_Row]) -> set[str]:
    """Return the groups that began in the last day of the range. Without older failed calls none is new, because everything would be."""
    began = ids.first_id_at(max(_end_of(rows) - IS_NEW, ids.EARLIEST))
    young = {row.key for row in groups if row.first >= began}
    known = _known_before(rows) if young else None
    if known is None and not (young and rows.within(IdRange(upper=began)).keys(newest_first=False, limit=1)):
        return set()
    return young - (known or set())


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


def _failed(rows: ListRows, words: Sequence[str] = ()) -> Query:
    """Return the statement for what is grouped of each of the failed calls."""
    failed = _with_words(rows, words).order_by()
    return Query.of(failed.values_list("pk", "project_id", "tool_id", F("pattern"), "run__session__end_user"))


def _with_words(rows: ListRows, words: Sequence[str]) -> QuerySet[Any]:
    """Return the failed calls whose pattern has all of the words, in any case, with the alias `pattern`."""
    failed: QuerySet[Any] = with_patterns(rows.queryset, rows.ids)
    for word in words:
        failed = failed.filter(pattern__icontains=word)
    return failed


def _end_of(rows: ReadableRows[ListRows]) -> datetime:
    now, upper = timezone.now(), _range_of(rows).upper
    return now if upper is None else min(now, ids.created_at_of(upper))


def _steps(rows: ReadableRows[ListRows]) -> tuple[timedelta, list[datetime]]:
    """Return the length of a step, and the beginnings of the steps from the first failed call or the given time on."""
    range_, end = _range_of(rows), _end_of(rows)  # calls that are ahead of our clock belong to the last step
    if range_.lower is not None:
        begin = ids.created_at_of(range_.lower)
    else:
        oldest = rows.keys(newest_first=False, limit=1)
        begin = ids.created_at_of(oldest[0]) if oldest else end
    return steps_between(begin, end)


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
    row: _Row,
    tools: dict[int, Tool],
    examples: dict[UUID, ToolCall],
    beginnings: Sequence[datetime],
    counted_from: datetime | None,
    *,
    is_new: bool,
    likeness: float | None,
    is_masked: bool,
) -> Group:
    of_tools: Counter[int] = Counter()
    of_steps: Counter[datetime] = Counter()
    for tool_id, step, count in zip(row.tools, row.steps, row.counts, strict=True):
        of_tools[tool_id] += count
        of_steps[beginnings[step - 1]] += count
    most_called = sorted(of_tools.items(), key=lambda tool: (-tool[1], tool[0]))
    error = getattr(examples[row.last], "error_text", None) or ""  # None without a result
    return Group(
        id=row.key,
        # What a rule hides may not fit it any more where a pattern has "#".
        pattern=error if is_masked else row.pattern,
        calls=row.calls,
        first=row.first,
        last=row.last,
        tools=[(tools[tool_id], count) for tool_id, count in most_called[:TOOLS_LISTED]],
        tool_count=len(of_tools),
        end_user_count=len({user for users in row.users for user in users or ()}),
        last_calls=row.last_calls,
        steps=of_steps,
        example=examples[row.last],
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
        end_user_count=group.end_user_count,
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
