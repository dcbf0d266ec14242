"""One conversation in every format of files and on every wire gives the same rows."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tracesite_sdk.formats.registry import FORMATS
from tracesite_sdk.spans.conventions.registry import CONVENTIONS

from .conversation import PAUSED, WHOLE, Conversation, Form, expected_rows, rows_of
from .files import FILE_FORMS
from .own import OWN_FORMS
from .spans import SPAN_FORMS

FORMS = [*FILE_FORMS, *OWN_FORMS, *SPAN_FORMS]
STATES = {"whole": WHOLE, "paused": PAUSED}
NOT_WRITTEN = {
    "aider": "has no calls",
    "codex_exec": "has neither prompts nor times",
    "langsmith": "a file of runs, as its wire has them",
    "cline": "says of its environment what no other form has",
    "cursor": "has no calls",
    "otlp": "a file of spans: every convention of them is one",
    "generic spans": "completes other conventions, and knows neither requests nor tools",
    "openai_agents spans": "the attributes that its wire makes",
}
"""Formats and conventions without a form of their own."""


def cases() -> list[object]:
    return [
        pytest.param(form, conversation, id=f"{form.name}-{state}")
        for form in FORMS
        for state, conversation in STATES.items()
        # Without what has not ended there is neither the question nor the call that waits.
        if state == "whole" or "open spans" not in form.lacks
    ]


@pytest.mark.parametrize(("form", "conversation"), cases())
def test_conversation_in_every_form_gives_the_same_rows(form: Form, conversation: Conversation) -> None:
    assert rows_of(form.session(conversation)) == expected_rows(form, conversation)


def test_every_format_and_convention_has_a_form() -> None:
    formats = {name.removesuffix(".transcripts").rpartition(".")[2] for name in map(name_of, FORMATS)}
    conventions = {f"{name_of(convention).rpartition('.')[2]} spans" for convention in CONVENTIONS}
    assert (formats | conventions) - {form.name for form in FORMS} == NOT_WRITTEN.keys(), (
        "Write the conversation in the new format or convention in files.py or spans.py, or say above why not."
    )


def name_of(module: object) -> str:
    return str(getattr(module, "__name__"))  # noqa: B009


def test_form_without_lacks_has_every_feature() -> None:
    _question, answer = expected_rows(Form(name="all", session=lambda _conversation: pytest.fail()), WHOLE).messages
    assert (answer.input_tokens, answer.output_tokens, answer.unpriced_count) == (4900, 110, 0)
    # By hand: 600 new and 2,900 cached tokens and 100 of output by the large model, 1,400 and 10 by the small one.
    assert answer.cost == Decimal("0.00278") + Decimal("0.00144")
    assert [(call.id, call.status) for step in answer.steps for call in step.calls] == [
        ("call_1", "error"),
        ("call_2", "success"),
        ("call_3", "success"),
        ("call_4", "success"),
    ]
