"""One search of many texts leads to the same redactions as a close look at each of them."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from sdk.tests.growth import grows_linearly
from sdk.tests.length import examples
from tracesite_sdk import records
from tracesite_sdk.normalize import redacted
from tracesite_sdk.redaction import prefilter
from tracesite_sdk.redaction.engine import Receipt, redact, suspects_of
from tracesite_sdk.redaction.presets import PRESETS
from tracesite_sdk.redaction.rules import DEFAULT_RULES, MARKER, PathRule, Rules, Shape
from tracesite_sdk.spans import redaction as of_spans
from tracesite_sdk.spans.span import Scope, Span, SpanEvent

from .corpus import innocents, trials

RULES = {
    "default": DEFAULT_RULES,
    "users": replace(
        DEFAULT_RULES,
        shapes=(
            *DEFAULT_RULES.shapes,
            *(shape for preset in PRESETS.values() for shape in preset),
            Shape("badge", re.compile(r"\bB\d{6}\b")),
        ),
        paths=(PathRule("customer", ("customer", "name")),),
    ),
}
ODD = [
    "",
    "a:b",
    "B123456",
    "4111 1111 1111 1111",
    "密码：abc123",
    "pin\u212a: 1234",
    "\\u0022pin\\u0022:\\u00221234\\u0022",
]
KEYS = ["note", "customer", "name", "value", "password", "gen_ai.request.model", "ghp_" + "AbCdefGhIjKlmnOp" * 2]


@cache
def corpus() -> list[str]:
    values = [trial.value for trial in trials()] + [innocent.value for innocent in innocents()]
    return [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]


@st.composite
def split_texts(draw: st.DrawFn) -> list[str]:
    """Draw texts of the corpus, each split at random places."""
    parts = []
    for text in draw(st.lists(st.sampled_from(ODD) | st.deferred(lambda: st.sampled_from(corpus())), max_size=6)):
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
        parts += [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
    return parts


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda raw: json.loads(bytes(raw)))


texts = split_texts().flatmap(st.permutations)
values = st.recursive(
    st.one_of(texts, st.sampled_from([1, 1.5, True, None, 4111111111111111])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        inner.map(written),
        inner.map(lambda value: Raw(written(value).encode())),
    ),
    max_leaves=5,
)


@contextmanager
def everything_suspected() -> Iterator[None]:
    """Look closely at every text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefilter.Filter, "hits", lambda _self, texts: set(range(len(texts))))
        yield


@settings(max_examples=examples(30))
@given(texts=texts, raw=st.booleans(), rules=st.sampled_from(list(RULES.values())))
def test_filter_hits_each_text_that_it_hits_alone(texts: list[str], raw: bool, rules: Rules) -> None:
    some: list[prefilter.Text] = [
        Raw(json.dumps([text]).encode()) if raw and index % 2 else text for index, text in enumerate(texts)
    ]
    search = prefilter.filter_of(rules).hits
    assert search(some) >= {index for index, text in enumerate(some) if search([text])}


@settings(max_examples=examples(30))
@given(groups=st.lists(st.lists(values, max_size=3), max_size=20), rules=st.sampled_from(list(RULES.values())))
def test_values_of_any_group_are_redacted_as_if_alone(groups: list[Any], rules: Rules) -> None:
    with everything_suspected():
        expected = [[redact(value, rules, "args") for value in group] for group in groups]
    suspects = suspects_of(groups, rules, frozenset({"args"}))
    found = [
        [redact(value, rules, "args", suspects=of_group) for value in group]
        for group, of_group in zip(groups, suspects, strict=True)
    ]
    assert msgspec.json.encode(found) == msgspec.json.encode(expected)


@settings(max_examples=examples(20))
@given(
    fields=st.lists(st.lists(values, min_size=8, max_size=8), max_size=4), rules=st.sampled_from(list(RULES.values()))
)
def test_fields_of_a_session_are_redacted_as_if_alone(fields: list[list[Any]], rules: Rules) -> None:
    session = records.Session(title="password=hunter2", messages=list(map(message_of, fields)))
    found = redacted.redact(session, rules)
    with everything_suspected():
        expected = redacted.redact(session, rules)
    assert msgspec.json.encode(found.session) == msgspec.json.encode(expected.session)
    assert (found.receipts, found.message_receipts) == (expected.receipts, expected.message_receipts)


def message_of(fields: list[Any]) -> records.Message:
    content, metadata, usage, thought, args, reflection, output, data = fields
    result = records.ToolResult(output=written(output), data=data)
    call = records.ToolCall(name="t", args=args, reflection=written(reflection), result=result)
    step = records.AgentStep(thought=written(thought), tool_calls=[call])
    extra = {"metadata": {"a": metadata}, "usage": {"b": usage}}
    return records.Message(role="assistant", content=written(content), agent_steps=[step], **extra)


@settings(max_examples=examples(20))
@given(
    attributes=st.lists(st.lists(values, min_size=3, max_size=3), max_size=20),
    rules=st.sampled_from(list(RULES.values())),
)
def test_spans_are_redacted_as_if_alone(attributes: list[list[Any]], rules: Rules) -> None:
    scope = Scope(resource={"service.name": "password=hunter2"})
    spans = [
        Span(
            trace_id="a",
            span_id=f"{number:016x}",
            name="s",
            scope=scope,
            attributes={"a": first, "b": second},
            events=[SpanEvent(name="e", attributes={"c": third})],
        )
        for number, (first, second, third) in enumerate(attributes)
    ]
    found = of_spans.redact(spans, rules)
    with everything_suspected():
        expected = [span for alone in spans for span in of_spans.redact([alone], rules)]
    assert msgspec.json.encode(found) == msgspec.json.encode(expected)


def test_name_at_the_end_of_a_text_hides_nothing_in_the_next() -> None:
    values = ["see Bearer", "password: hunter2", "password", "= hunter2"]
    (suspects,) = suspects_of([values])
    assert redact(values, suspects=suspects) == (
        ["see Bearer", f"password: {MARKER}", "password", "= hunter2"],
        [Receipt("[1]", "password")],
    )


def test_only_suspicious_texts_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    of_json = "tracesite_sdk.redaction.engine.is_json"
    monkeypatch.setattr(of_json, lambda text: looked_at.append(text) or text.startswith("["))
    clean = ["the weather", "in Oslo", "token"]
    inside = json.dumps([*clean, "api_key=abc123"])
    redact({"a": clean, "b": {"c": "password=hunter2"}, "d": Raw(written(clean).encode()), "e": [*clean, inside]})
    assert looked_at == ["password=hunter2", inside, "api_key=abc123"]


@pytest.mark.parametrize(
    "text", ["password=hunter2", "\\u0070", "密码：abc123", "key ", "sig=a%", "--token x", "Bearer"]
)
def test_many_suspicious_texts_take_linear_time(text: str) -> None:
    search = prefilter.filter_of(DEFAULT_RULES).hits
    assert grows_linearly(search, lambda size: [text] * size, 4_000, spare=0.05)


def test_strings_of_json_text_are_not_in_memory_all_at_once() -> None:
    text = json.dumps(["plain words"] * 50_000 + ["password=hunter2"])
    tracemalloc.start()
    redact({"output": text})
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Python's own decoder takes most of it, to check that the text is JSON.
    assert peak < 8 * len(text)
