"""A step or a call of a run with its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from access_app.db import Database
from messages_app.safe_text import first_characters, pretty_json, size_of, size_of_json
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, ToolCall, ToolResult
from traces_app.queries.error_groups import group_of_call
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.runs.outline import read_words, step_number
from tracesite_sdk.normalize import pricing

from .answer import Answer, Data, Hint, Line, Section, line

CHARACTERS_READ = 200_000
"""Of a text from where it begins to be read. The end of a longer one is not shown."""
CALLS_LISTED = 500
TEXTS_OF_STEP: Mapping[str, tuple[Any, str, bool]] = {
    "thought": (AgentStep, "thought", False),
    "reasoning": (AgentStep, "reasoning", False),
    "usage": (AgentStep, "usage", True),
    "metadata": (AgentStep, "metadata", True),
}
TEXTS_OF_CALL: Mapping[str, tuple[Any, str, bool]] = {
    "error": (ToolResult, "error", False),
    "arguments": (ToolCall, "args", True),
    "output": (ToolResult, "output", False),
    "data": (ToolResult, "data", True),
    "reflection": (ToolCall, "reflection", False),
    "raw": (ToolResult, "raw", False),
    "metadata": (ToolCall, "metadata", True),
}
"""The model, the column, and whether it is JSON, by the name of each text."""
_EMPTY = ("", "{\n}", "[\n]", "null", None)


def step_answer(db: Database, step: AgentStep, part: str, begin: int) -> Answer:
    """Return a step with its thought and calls; with `part` only that text, from its character `begin` on."""
    tokens = pricing.tokens_of(step.usage)
    calls = list(
        db.rows(ToolCall.with_deleted)
        .filter(step_id=step.pk, **ids_below([step.message_id]))
        .select_related("tool")
        .defer("args", "metadata")
        .order_by("position", "pk")[: CALLS_LISTED + 1]
    )
    number = step_number(db, step)
    words = read_words(
        db, [call.pk for call in calls[:CALLS_LISTED]], message_id=step.message_id, **ids_below([step.message_id])
    )
    of_calls = Section(
        title="Calls",
        lines=[
            line(
                *("{number} {tool}", "{text}", "{status}", "{error}", "{result}", "{duration_ms}", "call {call}"),
                number=f"{number}/{call.position}",
                tool=Data(call.tool.name),
                text=Data(told.text),
                status=call.status,
                error=Data(told.error),
                result=Data(told.note),
                duration_ms=call.duration_ms,
                call=str(call.pk),
            )
            for call in calls[:CALLS_LISTED]
            for told in [words[str(call.pk)]]
        ],
        total=len(calls),
        share=0.5,
    )
    texts = text_sections(db, step, (part,) if part else tuple(TEXTS_OF_STEP), begin, Hint("step", {"step": step.pk}))
    return Answer(
        title=f"Step {number}",
        head=[
            line(
                *(
                    "agent {agent}",
                    "model {model}",
                    "took {duration_ms}",
                    "first token after {first_token_ms}",
                    "cost {cost}",
                ),
                "{input_tokens} tokens in, {cached_tokens} of them cached, {output_tokens} out",
                agent=Data(step.agent_name),
                model=Data(step.model),
                duration_ms=step.duration_ms,
                first_token_ms=step.time_to_first_token_ms,
                cost=step.cost,
                input_tokens=None if tokens is None else tokens.input + tokens.cache_write + tokens.cached_input,
                cached_tokens=None if tokens is None else tokens.cached_input,
                output_tokens=None if tokens is None else tokens.output + tokens.reasoning,
            ),
            line(
                "step {step}",
                "run {run}",
                "{started_at}",
                step=str(step.pk),
                run=str(step.message_id),
                started_at=step.timestamp,
            ),
            _nothing(texts, part, begin),
        ],
        sections=texts if part else [of_calls, *texts],
        found=1 if texts or not part else 0,
        page=url_in_run(step.message_id, step.pk),
    )


def call_answer(db: Database, call: ToolCall, part: str, begin: int) -> Answer:
    """Return a call with its error, arguments and result; with `part` only that text, from its character `begin` on."""
    group = group_of_call(db, call.pk)
    more = Hint("call", {"call": call.pk})
    texts = text_sections(db, call, (part,) if part else tuple(TEXTS_OF_CALL), begin, more)
    return Answer(
        title="Call",
        head=[
            line(
                *("{number} {tool}", "{status}", "took {duration_ms}", "{started_at}"),
                number=f"{step_number(db, call.step)}/{call.position}",
                tool=Data(call.tool.name),
                status=call.status,
                duration_ms=call.duration_ms,
                started_at=call.started_at,
            ),
            line(
                *("call {call}", "run {run}", "step {step}", "called by {parent}", "ID of the model {call_id}"),
                call=str(call.pk),
                run=str(call.message_id),
                step=str(call.step_id),
                parent=None if call.parent_id is None else str(call.parent_id),
                call_id=Data(call.call_id),
            ),
            line("equal errors: group {group}", group=group),
            _nothing(texts, part, begin),
        ],
        sections=texts,
        found=1 if texts or not part else 0,
        page=url_in_run(call.message_id, call.pk),
    )


def _nothing(texts: Sequence[Section], part: str, begin: int) -> Line:
    """Say that a part is empty, or has nothing more."""
    is_empty = part and not texts
    return line("no {empty_part} from character {begin} on", empty_part=part if is_empty else None, begin=begin)


def text_sections(
    db: Database, node: AgentStep | ToolCall, names: Sequence[str], begin: int, more: Hint
) -> list[Section]:
    """Return those texts of a step or call that are not empty, from character `begin` on. One query, or two for a call."""
    texts = TEXTS_OF_CALL if isinstance(node, ToolCall) else TEXTS_OF_STEP
    read: dict[str, tuple[str, int]] = {}
    for model in (AgentStep, ToolCall, ToolResult):
        own = {name: texts[name] for name in names if texts[name][0] is model}
        if own:
            read |= _read(db, model, node.pk, own, begin + CHARACTERS_READ)
    sections = []
    for name in names:
        text, left_out = read.get(name, ("", 0))
        # Of a failed call the output is often the error.
        if text[begin:] and not (name == "output" and text == read.get("error", ("", 0))[0]):
            hint = Hint(more.answer, {**more.parameters, "part": name})
            sections.append(
                Section(
                    title=name.capitalize(), text=text[begin:], begin=begin, left_out=left_out, more=hint, share=0.6
                )
            )
    return sections


def _read(
    db: Database, model: Any, key: UUID, texts: Mapping[str, tuple[Any, str, bool]], characters: int
) -> dict[str, tuple[str, int]]:
    """Return the beginning of each text, and how many bytes follow it."""
    shown = {
        f"shown_{name}": (pretty_json if is_json else first_characters)(column, characters)
        for name, (_model, column, is_json) in texts.items()
    }
    sizes = {
        f"size_{name}": (size_of_json if is_json else size_of)(column)
        for name, (_model, column, is_json) in texts.items()
    }
    rows = db.rows(model.objects if model is ToolResult else model.with_deleted).filter(pk=key)
    row = rows.annotate(**shown, **sizes).values(*shown, *sizes).first() or {}
    found = {}
    for name in texts:
        text = row.get(f"shown_{name}")
        if text not in _EMPTY:
            found[name] = (
                text,
                max((row[f"size_{name}"] or 0) - len(text.encode()), 0) if len(text) >= characters else 0,
            )
    return found
