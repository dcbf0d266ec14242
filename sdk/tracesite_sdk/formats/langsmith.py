"""Read runs of LangSmith from files.

* Answers of its API (`POST /runs/query`: `{"runs": [...]}`), lists of them and lines, one run, and the dicts of its SDK.
* Bodies of `POST /runs/batch`, `{"post": [...], "patch": [...]}`, in which a patch completes the run that a post began.

The runs are stored as those that arrive over HTTP (spans/langsmith_runs.py), so a file and the wire may hold parts of one
trace. A document is held whole, because the runs of a trace may be anywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.spans.conversation import sessions_of_traces
from tracesite_sdk.spans.langsmith_runs import Operation, span_of
from tracesite_sdk.spans.pieces import InvalidItem, bound
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values

NAME = "langsmith"

_LISTS = ("runs", "post", "patch")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a run, or has a list of them."""
    return any(_is_run(value) or _has_runs(value) for value in first_values(document, 50))


def transcripts(document: Document, skip: Skip) -> Iterator[records.Session]:
    """Yield the session of each trace."""
    return sessions_of_traces(spans(document, skip))


def spans(document: Document, skip: Skip) -> Iterator[Span]:
    """Yield the runs of a document that `recognises` accepts; report the values that are none to `skip`."""
    for where, value in numbered_values(document):
        lists = [name for name in _LISTS if isinstance(fields(value).get(name), list)]
        if not (lists or _is_run(value)):
            skip(where or "(all)", "neither a run nor a list of runs")
        for name in lists:
            for index, run in enumerate(value[name]):
                yield from _piece(join_place(where, f"{name}[{index}]"), run, name, skip)
        if not lists and _is_run(value):
            yield from _piece(where, value, "", skip)


def _is_run(value: Any) -> bool:
    """Return whether a value is a run. In an answer of the API it may have no inputs, if they were not selected."""
    run = fields(value)
    return isinstance(run.get("dotted_order"), str) or (_is_of_trace(run) and "run_type" in run and "inputs" in run)


def _is_of_trace(run: dict[str, Any]) -> bool:
    return isinstance(run.get("id"), str) and isinstance(run.get("trace_id"), str)


def _has_runs(value: Any) -> bool:
    lists = {name: [fields(run) for run in items(fields(value).get(name))[:10]] for name in _LISTS}
    # A patch may have its end alone.
    ended = any(_is_of_trace(run) and "end_time" in run for run in lists["patch"])
    return ended or any(_is_run(run) for runs in lists.values() for run in runs)


def _piece(where: str, run: Any, name: str, skip: Skip) -> Iterator[Span]:
    # A whole run that has ended is as late as the patch that ended it.
    is_patch = name == "patch" or (name != "post" and bool(fields(run).get("end_time")))
    operation: Operation = "patch" if is_patch else "post"
    bound(run)
    try:
        yield span_of(operation, run)
    except InvalidItem as error:
        skip(where or "(all)", str(error))
