"""Facets: the values that the rows of a list have, with how many rows have each, as links that filter by them.

The newest COUNTED_ROWS that pass the other filters are counted. It comes after the page (facets.js), so that this need not wait; without
JavaScript the same filters are in the panel above the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.db import OperationalError
from django.db.models import Case, CharField, Count, Expression, Q, QuerySet, Sum, Value, When
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.db import Database
from access_app.db.conflicts import was_stopped
from access_app.models import AuditEntry
from messages_app.admin.filters import CURSOR, BarFilter, NameFilter, WordListFilter
from messages_app.admin.keyset import KeysetAdmin, KeysetChangeList
from messages_app.admin.walks import ROWS_AT_A_TIME, request_for
from messages_app.audit_log import KINDS
from messages_app.models import UNKNOWN_IN_MESSAGE, UNKNOWN_IN_SESSION, Message, Session
from messages_app.safe_text import cost, is_plain
from messages_app.sql.batch import Query, fetch
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, Score, ToolCall
from traces_app.queries.filters import sessions_of
from traces_app.queries.runs.outcome import CONDITIONS, OF_STATUS, Outcome

from .text_search import is_searched

COUNTED_ROWS = 1_000
COUNTED_MESSAGES = 20_000
"""Messages of sessions whose agents, models and tools are counted."""
VALUES_SHOWN = 8
"""Values of a facet that are not folded."""
MOST_VALUES = 100
"""Values of a facet; any other can be typed."""

Counts = Mapping[Any, int]
CountValues = Callable[[Database, Sequence[Any]], Counts]
"""Return how many of some rows, given by their keys, have each value."""


@dataclass(frozen=True, kw_only=True)
class Facet:
    """The values of a filter."""

    title: str
    parameter: str
    values: Sequence[tuple[str, str, int, str, bool]]
    """Value, label, rows, the list with only these or without this filter, and whether it is chosen."""
    note: str = ""
    """Of which rows these are, if they are not those of the sums."""

    @property
    def parts(self) -> Sequence[Sequence[tuple[str, str, int, str, bool]]]:
        """Return the values that are shown, and those that are folded, if there are some."""
        return [part for part in (self.values[:VALUES_SHOWN], self.values[VALUES_SHOWN:]) if part]


@dataclass
class _Counting:
    """What a list counts instead of reading a page."""

    counts: Mapping[str, CountValues]
    most: int
    found: dict[str, Counter[Any]] = field(default_factory=dict)
    rows: int = 0
    """At most one more than are counted."""


class _CountedList(KeysetChangeList):
    """A list of which the newest rows are counted, not read."""

    def get_results(self, request: HttpRequest) -> None:
        counting: _Counting = request.counting  # type: ignore[attr-defined]  # given by `_counted`
        with ExitStack() as stack:
            rows = self._rows(request, stack)
            keys = list(rows.keys(newest_first=True, limit=counting.most + 1))
            counting.rows = len(keys)
            if keys:
                for name, count in counting.counts.items():
                    parts = rows.ask(keys[: counting.most], count)
                    counting.found[name] = sum((Counter(part) for part in parts), Counter())
        self.result_list = []


def _counted(
    model_admin: KeysetAdmin, request: HttpRequest, counts: Mapping[str, CountValues], without: str = CURSOR
) -> tuple[KeysetChangeList, _Counting]:
    """Return the list of a request, but for one parameter, and what was counted of it."""
    parameters = request.GET.copy()
    for name in (CURSOR, without):
        parameters.pop(name, None)
    page = request_for(request, parameters)
    # A search finds as many as a page needs, and those of walks are the longest.
    page.is_walk = is_searched(request)  # type: ignore[attr-defined]
    counting = _Counting(counts, most=ROWS_AT_A_TIME if is_searched(request) else COUNTED_ROWS)
    page.counting = counting  # type: ignore[attr-defined]
    page.changelist = _CountedList  # type: ignore[attr-defined]  # read by KeysetAdmin.get_changelist
    return model_admin.keyset_list(page), counting


def send_facets(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Send the facets of the list of the request, a fragment of HTML; nothing if counting takes too long."""
    try:
        return TemplateResponse(request, "admin/facets.html", _context(model_admin, request))
    except IncorrectLookupParameters:
        return HttpResponse(status=204)
    except OperationalError as error:
        if not was_stopped(error):
            raise
        return HttpResponse(status=204)


def _context(model_admin: KeysetAdmin, request: HttpRequest) -> dict[str, Any]:
    of_list = FACETS[model_admin.model]
    given = {name for name in of_list if request.GET.get(name)}
    counts = {name: count for name, count in of_list.items() if name not in given}
    found, counting = _counted(model_admin, request, counts | {_SUMS: SUMS[model_admin.model]})
    values = dict(counting.found)
    notes = {}
    for name in given:
        # The other values of a filter are those of the list without it.
        _wider, of_one = _counted(model_admin, request, {name: of_list[name]}, without=name)
        values |= of_one.found
        if of_one.rows > of_one.most:
            notes[name] = _("of the newest %(number)s") % {"number": f"{of_one.most:,}"}
    specs = {spec.parameter_name: spec for spec in found.bar_filters}
    return {
        "facets": [
            facet
            for name in of_list
            if name in specs and (facet := _facet(found, specs[name], values.get(name, {}), notes.get(name, ""))).values
        ],
        "sums": _in_words(counting, all_failed=_are_failed(request)),
        "names": [
            (spec.parameter_name, spec.suggestions()) for spec in found.bar_filters if isinstance(spec, NameFilter)
        ],
    }


def _facet(found: KeysetChangeList, spec: BarFilter, counts: Counts, note: str) -> Facet:
    name = spec.parameter_name
    words = spec.words if isinstance(spec, WordListFilter) else None
    if words is not None:
        known = [value for value in words if value in counts]
    else:
        plain = (value for value in counts if value and is_plain(value))
        known = sorted(plain, key=lambda value: (-counts[value], value))[:MOST_VALUES]
    if spec.value and spec.value not in known:
        known.insert(0, spec.value)
    return Facet(
        title=capfirst(str(spec.title)),
        parameter=name,
        values=[
            (
                value,
                capfirst(str(words[value])) if words and value in words else value,
                counts.get(value, 0),
                found.get_query_string({name: None if value == spec.value else value}, [CURSOR]),
                value == spec.value,
            )
            for value in known
        ],
        note=note,
    )


# --- Counts -----------------------------------------------------------------------------------------------------------


_ENDED = Case(
    *(When(condition, then=Value(one.value)) for one, condition in CONDITIONS.items()), output_field=CharField()
)


def _outcomes(db: Database, keys: Sequence[Any]) -> Counts:
    rows = db.rows(Message.with_deleted).filter(pk__in=keys, role=Message.Role.ASSISTANT).order_by()
    return dict(rows.annotate(ended=_ENDED).values_list("ended").annotate(Count("pk")))


def _outcomes_of_sessions(db: Database, keys: Sequence[Any]) -> Counts:
    """Count what `sessions_of` tells apart, by the keys of the newest runs: with its conditions PostgreSQL hashes all messages."""
    sessions = db.rows(Session.with_deleted).filter(pk__in=keys).order_by().values_list("last_run_id", "status")
    newest = db.rows(Message.objects).filter(pk__in=[run for run, _status in sessions if run is not None]).order_by()
    ended: dict[Any, str] = dict(newest.annotate(ended=_ENDED).values_list("pk", "ended"))
    return Counter(ended.get(run) or OF_STATUS[status].value for run, status in sessions)


def _of_rows(model: type[Message] | type[Session] | type[ToolCall] | type[Score], column: str) -> CountValues:
    def count(db: Database, keys: Sequence[Any]) -> Counts:
        rows = db.rows(model.with_deleted).filter(pk__in=keys)
        return dict(rows.order_by().values_list(column).annotate(Count("pk")))

    return count


def _of_entries(column: str) -> CountValues:
    def count(_db: Database, keys: Sequence[Any]) -> Counts:
        rows = AuditEntry.objects.filter(pk__in=keys)
        return dict(rows.order_by().values_list(column).annotate(Count("pk")))

    return count


def _kinds_of_entries(_db: Database, keys: Sequence[Any]) -> Counts:
    kind = Case(*(When(condition, then=Value(name)) for name, condition in KINDS.items()), output_field=CharField())
    rows = AuditEntry.objects.filter(pk__in=keys).order_by().annotate(kind=kind)
    return dict(rows.values_list("kind").annotate(Count("pk")))


def _of_steps(column: str) -> CountValues:
    def count(db: Database, keys: Sequence[Any]) -> Counts:
        steps = db.rows(AgentStep.with_deleted).filter(message_id__in=keys, **ids_below(keys)).exclude(**{column: ""})
        return dict(steps.order_by().values_list(column).annotate(Count("message_id", distinct=True)))

    return count


def _tools(db: Database, keys: Sequence[Any]) -> Counts:
    calls = db.rows(ToolCall.with_deleted).filter(message_id__in=keys, **ids_below(keys))
    return dict(calls.order_by().values_list("tool__name").annotate(Count("message_id", distinct=True)))


# The ids as one value, because Django and psycopg take 20 µs for each of a list. Nothing is read of sessions with too many messages.
_IN_SESSIONS = """
    SELECT {value}, count(DISTINCT message.session_id)
    FROM messages_app_message AS message JOIN {below} ON below.message_id = message.id
    WHERE message.session_id = ANY(%s::uuid[]) AND message.deleted_at IS NULL AND message.id >= %s AND below.id >= %s
        AND {value} <> '' AND (SELECT sum(message_count) FROM messages_app_session WHERE id = ANY(%s::uuid[])) <= %s
    GROUP BY 1"""


def _in_sessions(below: str, value: str) -> CountValues:
    """Count the sessions with each value below their messages, of the time since the first of them began; of sessions with more than
    COUNTED_MESSAGES none."""
    sql = _IN_SESSIONS.format(below=below, value=value)

    def count(db: Database, keys: Sequence[Any]) -> Counts:
        begin, sessions = ids_below(keys)["pk__gte"], f"{{{','.join(map(str, keys))}}}"
        (rows,) = fetch(db, [Query(sql=sql, parameters=[sessions, begin, begin, sessions, COUNTED_MESSAGES])])
        return dict(rows)

    return count


_STEPS = "traces_app_agentstep AS below"
_CALLS = "traces_app_toolcall AS below JOIN traces_app_tool AS tool ON tool.id = below.tool_id"


def _yes_and_no(db: Database, keys: Sequence[Any]) -> Counts:
    rows = db.rows(Score.with_deleted).filter(pk__in=keys, kind=Score.Kind.BOOLEAN).order_by()
    return {"true" if number else "false": count for number, count in rows.values_list("number").annotate(Count("pk"))}


def _sums_of_runs(db: Database, keys: Sequence[Any]) -> Counts:
    rows = db.rows(Message.with_deleted).filter(pk__in=keys)
    return _sums(rows, CONDITIONS[Outcome.FAILED], UNKNOWN_IN_MESSAGE, Q(is_completed=False))


def _sums_of_sessions(db: Database, keys: Sequence[Any]) -> Counts:
    rows = db.rows(Session.with_deleted).filter(pk__in=keys)
    return _sums(rows, sessions_of(Outcome.FAILED), UNKNOWN_IN_SESSION, Q(open_count__gt=0))


def _sums(rows: QuerySet[Any], has_failed: Q, unknown: Expression, goes_on: Q) -> Counts:
    sums = rows.aggregate(
        failed=Count("pk", filter=has_failed),
        cost=Sum("cost"),
        unknown=Sum(unknown),
        going_on=Count("pk", filter=goes_on),
    )
    return {name: value or 0 for name, value in sums.items()}


def _sums_of_calls(db: Database, keys: Sequence[Any]) -> Counts:
    rows = db.rows(ToolCall.with_deleted).filter(pk__in=keys)
    return rows.aggregate(failed=Count("pk", filter=Q(status=ToolCall.Status.ERROR)))


_SUMS = "sums"
FACETS: Mapping[Any, Mapping[str, CountValues]] = {
    Message: {
        "outcome": _outcomes,
        "agent": _of_steps("agent_name"),
        "tool": _tools,
        "model": _of_steps("model"),
        "end_user": _of_rows(Message, "session__end_user"),
    },
    Session: {
        "outcome": _outcomes_of_sessions,
        "agent": _in_sessions(_STEPS, "below.agent_name"),
        "tool": _in_sessions(_CALLS, "tool.name"),
        "model": _in_sessions(_STEPS, "below.model"),
        "end_user": _of_rows(Session, "end_user"),
    },
    ToolCall: {
        "status": _of_rows(ToolCall, "status"),
        "tool": _of_rows(ToolCall, "tool__name"),
        "agent": _of_rows(ToolCall, "step__agent_name"),
        "model": _of_rows(ToolCall, "step__model"),
    },
    Score: {
        "name": _of_rows(Score, "name"),
        "value": _yes_and_no,
        **{column: _of_rows(Score, column) for column in ("label", "source", "author")},
    },
    AuditEntry: {
        "kind": _kinds_of_entries,
        "action": _of_entries("action"),
        "actor": _of_entries("actor_name"),
        "result": _of_entries("result"),
    },
}
"""By the parameters of filters, in order."""
SUMS: Mapping[Any, CountValues] = {
    Message: _sums_of_runs,
    Session: _sums_of_sessions,
    ToolCall: _sums_of_calls,
    Score: lambda _db, _keys: {},
    AuditEntry: lambda _db, _keys: {},
}


def _are_failed(request: HttpRequest) -> bool:
    """Return whether the list has failed rows alone."""
    return request.GET.get("status") == ToolCall.Status.ERROR or request.GET.get("outcome") == Outcome.FAILED


def _in_words(counting: _Counting, *, all_failed: bool) -> str:
    """Return how many rows the list has, how many of them failed and what they cost: "41 in all · 8 failed · $18.40".

    Of a list of failed rows alone it says their number once.
    """
    sums = counting.found.get(_SUMS, Counter())
    number = f"{min(counting.rows, counting.most):,}"
    words = _("the newest %(number)s") if counting.rows > counting.most else _("%(number)s in all")
    parts = [words % {"number": number}]
    if sums["failed"] and not all_failed:
        words = ngettext("%(number)s failed", "%(number)s failed", sums["failed"])
        parts.append(words % {"number": f"{sums['failed']:,}"})
    if sums["cost"]:
        known = cost(Decimal(sums["cost"]))
        known = f"≥ {known}" if sums["unknown"] else known
        parts.append(_("%(cost)s so far") % {"cost": known} if sums["going_on"] else known)
    return " · ".join(parts)
