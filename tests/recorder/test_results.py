"""The JSON Schema of what tools return, by a validator that the SDK does not need."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tracesite_sdk import results


def errors(returned: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(results.json_schema()).iter_errors(returned)]


def test_schema_accepts_results() -> None:
    Draft202012Validator.check_schema(results.json_schema())
    for made in (results.success([1], "one", pages=1), results.error("No such table."), results.pending()):
        assert errors(results.as_dict(made)) == []


@pytest.mark.parametrize("wrong", [{}, {"status": "done"}, {"status": "error", "error": 7}, []])
def test_schema_refuses_what_is_no_result(wrong: Any) -> None:
    assert len(errors(wrong)) == 1
