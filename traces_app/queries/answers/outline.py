"""The outline of a run: what failed, what it waited for, what decided how long it took, and its steps and calls in one line each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any
from uuid import UUID

from access_app.db import Database
from access_app.visibility import ProjectScope
from messages_app.models import NONE_DECIDED, Message
from messages_app.queries import as_uuid
from messages_app.sql.pagination import ids_below
from traces_app.models import ToolCall
from traces_app.queries.questions import near_good_run
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.runs.deciding import EndedCall, deciding_failures, stored_decision
from traces_app.queries.runs.outline import Outline, RowWords, RunRows, outline_of, read_runs, read_words
from traces_app.queries.runs.unrecorded import Gap, unrecorded

from .answer import BYTES_OF_TOKEN, Answer, Data, Hint, Line, Section, line
from .runs import find_run, head_of, line_of, listed, listed_runs

FAILURES_READ = 500
"""Failed calls of which the errors are read: the first ones and the last ones."""
LINE_BYTES = 30
"""Of a step or call, rather too few: so many lines are read as would fit."""
LONGEST_SHOWN = 5
"""Rows of the critical path, and times without anything running."""
LEAST_PART = 20
"""A part of the duration of a run below one in so many is not worth a line."""
RUNS_LISTED = 20
_PENDING, _ERROR = 0, 2
_NO_WORDS = RowWords()


def outline(db: Database, scope: ProjectScope, name: str, begin: int, max_tokens: int) -> Answer:
    """Return the outline of a run, or only its steps from line `begin` on. At most 30 queries. Raise NotFound and Conflict."""
    run = find_run(db, scope, name)
    rows = read_runs(db, [run.pk])[run.pk]
    whole = outline_of(rows, {}, is_whole=True, took_ms=run.took_ms)
    shown = _lines_of(whole)
    most = BYTES_OF_TOKEN * max_tokens // LINE_BYTES
    # Whoever reads on does so in order.
    first = range(begin, min(begin + most, len(shown))) if begin else range(min(most, len(shown)) // 2)
    last = range(0) if begin else range(max(len(first), len(shown) - most + len(first)), len(shown))
    steps = [shown[place] for place in (*first, *last)]
    failed = [row for row, status in enumerate(whole.statuses) if status == _ERROR]
    pending = [row for row, status in enumerate(whole.statuses) if status == _PENDING]
    told = failed if len(failed) <= FAILURES_READ else [*failed[: FAILURES_READ // 2], *failed[-FAILURES_READ // 2 :]]
    path = [] if begin else _longest(whole)
    gaps = [] if begin else _gaps(whole, run)
    wanted = {
        *steps,
        *([] if begin else (*told, *pending[:LONGEST_SHOWN], *path, *(row for _ms, row in gaps if row is not None))),
    }
    tell = _Teller(db, run, rows, whole, wanted)
    # What lies between two parts of a longer run is not known to be like them.
    is_cut = len(steps) < len(shown) - begin
    parts = [first, last] if is_cut else [range(begin, len(shown))]
    folded = [
        list(_folded([replace(tell.line(shown[place]), resume=_from(run, place)) for place in part])) for part in parts
    ]
    lines = [one for part in folded for one in part]
    sections = [
        Section(
            title="Steps and calls",
            lines=lines,
            total=len(lines) + len(shown) - begin - len(steps),
            more=_from(run, begin + len(first)),
            gap=None if begin else len(folded[0]) if is_cut else len(lines) // 2,
        )
    ]
    decided_by = _decided_by(db, run, rows)
    if not begin:
        failures = list(_failures(told, tell, decided_by))
        sections = [
            Section(
                title=f"Failed calls: {len(failed):,}",
                lines=failures,
                total=len(failures) + len(failed) - len(told),
                share=0.5,
            ),
            Section(
                # A run that is over waits for nothing.
                title="Calls that never got a result" if run.is_completed else "It waits for",
                lines=[tell.line(row, flat=True) for row in pending[:LONGEST_SHOWN]],
                total=len(pending),
                share=0.2,
            ),
            Section(
                title="Times without a step or call: nothing ran, or it was not recorded",
                lines=[
                    line("{gap_ms} at the end", gap_ms=ms)
                    if row is None
                    else line("{gap_ms} before {number}", gap_ms=ms, number=tell.number(row))
                    for ms, row in gaps
                ],
                share=0.2,
            ),
            Section(
                title="What took longest on the critical path",
                lines=[tell.line(row, flat=True, mark="bottleneck" if row == whole.bottleneck else "") for row in path],
                share=0.3,
            ),
            *_of_session(db, run, name),
            *sections,
        ]
    head = head_of(listed(db, run, decided_by))
    good = near_good_run(db, run) if run.has_errors else None
    if good is not None:
        head.append(line("last good run of the same question: {good_run}", good_run=str(good)))
    if rows.is_cut:
        head.append(line("the run has more steps or calls than are read: {read}", read=len(rows.ids)))
    return Answer(title="Run", head=head, sections=sections, page=url_in_run(run.pk))


class _Teller:
    """Tells the rows of an outline in lines. Reads the words of those that are `wanted`, in four queries."""

    def __init__(self, db: Database, run: Message, rows: RunRows, outline: Outline, wanted: Collection[int]) -> None:
        self._outline = outline
        self._pending = "no result" if run.is_completed else "no result yet"
        keys = [outline.ids[row] for row in wanted]
        self._words: Mapping[str, RowWords] = read_words(db, keys, message_id=run.pk, **ids_below([run.pk]))
        calls = db.rows(ToolCall.with_deleted).filter(
            pk__in=[outline.ids[row] for row in wanted if outline.calls[row]], **ids_below([run.pk])
        )
        places = {key: (step, position) for key, step, position in calls.values_list("pk", "step_id", "position")}
        steps = {step for step, _position in places.values()}
        numbers = {
            key: number
            for key, number, is_call in zip(rows.ids, rows.numbers, rows.calls, strict=True)
            if not is_call and key in steps
        }
        self._numbers = {
            key: f"{numbers[step]}/{position}" for key, (step, position) in places.items() if step in numbers
        }

    def id(self, row: int) -> UUID:
        return self._outline.ids[row]

    def number(self, row: int) -> str:
        key = self._outline.ids[row]
        return self._numbers.get(key, "") if self._outline.calls[row] else self._outline.numbers[row]

    def words(self, row: int) -> RowWords:
        return self._words.get(str(self._outline.ids[row]), _NO_WORDS)

    def name(self, row: int) -> Data:
        return Data(self._outline.names[self._outline.named[row]])

    def line(self, row: int, *, flat: bool = False, mark: str = "") -> Line:
        outline, words = self._outline, self.words(row)
        is_call, status = bool(outline.calls[row]), outline.statuses[row]
        return line(
            *("{number} {tool}", "{number} step {agent}" if self.name(row) else "{number} step"),
            *("{text}", "{repeats} times", "{state}", "{error}", "{result}", "{took_ms}", "{mark}"),
            depth=0 if flat else outline.depths[row],
            number=self.number(row),
            tool=self.name(row) if is_call else "",
            agent="" if is_call else self.name(row),
            text=Data(words.text),
            repeats=outline.repeats.get(row),
            state="failed" if status == _ERROR else self._pending if status == _PENDING else "",
            error=Data(words.error),
            result=Data(words.note),
            took_ms=outline.took(row),
            mark=mark,
        )

    def failure(self, rows: Sequence[int], *, decided: bool) -> Line:
        """Return the line of equal failures."""
        first, words = rows[0], self.words(rows[0])
        return line(
            *("{number} {tool}", "{text}", "{error}", "{count} times, last {last_number}", "{mark}", "call {call}"),
            number=self.number(first),
            tool=self.name(first),
            text=Data(words.text),
            error=Data(words.error),
            count=len(rows) if len(rows) > 1 else None,
            last_number=self.number(rows[-1]),
            mark="decided the outcome" if decided else "",
            call=str(self._outline.ids[first]),
        )


def _from(run: Message, place: int) -> Hint:
    return Hint("outline", {"run": run.pk, "begin": place})


def _folded(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield lines, of steps that follow each other and differ only in their numbers and durations those of the first one, with their
    number."""
    blocks: list[list[Line]] = []
    for one in lines:
        if one.depth == 0 or not blocks:
            blocks.append([])
        blocks[-1].append(one)
    for _key, alike in groupby(blocks, key=lambda block: [(one.depth, _said(one)) for one in block]):
        (head, *below), *others = alike
        if others:
            fields = {**head.fields, "blocks": len(others) + 1, "last_block": others[-1][0].fields["number"]}
            head = replace(head, parts=[*head.parts, "{blocks} times alike, the last {last_block}"], fields=fields)
        yield from (head, *below)


def _said(one: Line) -> dict[str, Any]:
    return {name: value for name, value in one.fields.items() if name not in ("number", "took_ms", "mark")}


def _lines_of(outline: Outline) -> list[int]:
    """Return the rows that have a line: of equal calls the first one."""
    rows: list[int] = []
    row = 0
    while row < len(outline.ids):
        rows.append(row)
        row += outline.repeats.get(row, 1)
    return rows


def _failures(rows: Iterable[int], tell: _Teller, decided_by: UUID | None) -> Iterator[Line]:
    """Yield the failures, equal ones together, that which decided first."""
    alike: dict[tuple[str, str], list[int]] = {}
    deciding: list[int] = []
    for row in rows:
        if tell.id(row) == decided_by:
            deciding = [row]
        else:
            alike.setdefault((tell.name(row), tell.words(row).error), []).append(row)
    if deciding:
        yield tell.failure(deciding, decided=True)
    yield from (tell.failure(some, decided=False) for some in alike.values())


def _longest(outline: Outline) -> list[int]:
    """Return the rows of the critical path that took longest, those first, without those that took a small part of the run."""
    took = {row: outline.took(row) or 0 for row, is_on in enumerate(outline.critical) if is_on}
    if outline.bottleneck is not None:
        took[outline.bottleneck] = outline.took(outline.bottleneck) or 0
    least = sum(took.values()) / LEAST_PART
    return sorted((row for row in took if took[row] and took[row] >= least), key=lambda row: -took[row])[:LONGEST_SHOWN]


def _gaps(outline: Outline, run: Message) -> list[Gap]:
    """Return the longest times that the rows of a run leave out, those first, without those that are a small part of it."""
    total, gaps = unrecorded(outline, run)
    return sorted((gap for gap in gaps if gap.ms >= total / LEAST_PART), key=lambda gap: -gap.ms)[:LONGEST_SHOWN]


def _decided_by(db: Database, run: Message, rows: RunRows) -> UUID:
    """Return the failed call that decided how the run ended, or NONE_DECIDED. No query, or one if it is not stored yet."""
    stored = stored_decision(run)
    if stored is not None:
        return stored
    calls = [
        EndedCall(place, key, name, status == _ERROR, status == _PENDING)
        for place, (key, name, status, is_call) in enumerate(
            zip(rows.ids, rows.names, rows.statuses, rows.calls, strict=True)
        )
        if is_call
    ]
    place = deciding_failures(db, {None: calls}).get(None)
    return NONE_DECIDED if place is None else rows.ids[place]


def _of_session(db: Database, run: Message, name: str) -> list[Section]:
    """Return the newest other runs of the session, if that was named."""
    if name not in (str(run.session_id), run.session.external_id) and as_uuid(name) != run.session_id:
        return []
    others = db.rows(Message.objects).filter(session_id=run.session_id, role=Message.Role.ASSISTANT).exclude(pk=run.pk)
    keys = list(others.order_by("-pk").values_list("pk", flat=True)[:RUNS_LISTED])
    lines = [line_of(one) for one in listed_runs(db, keys)]
    return [Section(title="Earlier runs of the session", lines=lines, total=others.count(), share=0.3)]
