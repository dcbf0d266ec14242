"""Test the results that tools return and agents read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from sdk.tests.paths import ROOT
from tracesite_sdk import records, results
from tracesite_sdk.normalize.tool_results import NO_REASON, normalize_result

MADE = [
    results.success({"results": [{"id": 1}]}, "找到一条", execution_time=0.2, from_cache=False),
    results.success(),
    results.error("No such table.", error_type="database", suggestion="Check the name.", details={"table": "x"}),
    results.error("", data={"tried": 3}),
    results.pending("Queued.", position=4),
]


def test_result_has_one_of_three_states() -> None:
    assert [json.loads(results.as_json(made)) for made in MADE] == [
        {
            "status": "success",
            "success": True,
            "output": "找到一条",
            "data": {"results": [{"id": 1}]},
            "metadata": {"execution_time": 0.2, "from_cache": False},
        },
        {"status": "success", "success": True},
        {
            "status": "error",
            "success": False,
            "error": "No such table.",
            "metadata": {"error_type": "database", "suggestion": "Check the name.", "details": {"table": "x"}},
        },
        {"status": "error", "success": False, "data": {"tried": 3}, "error": NO_REASON},
        {"status": "pending", "success": False, "output": "Queued.", "metadata": {"position": 4}},
    ]
    assert "找到一条" in results.as_json(MADE[0])


@pytest.mark.parametrize("made", MADE)
def test_result_survives_its_json(made: records.ToolResult) -> None:
    assert normalize_result(made, None) is made
    again = results.read(results.as_json(made))
    assert (again.status, again.data, again.error, again.metadata) == (
        made.status,
        made.data,
        made.error,
        made.metadata,
    )


@pytest.mark.parametrize("made", MADE)
def test_result_as_a_dict_has_its_type(made: records.ToolResult) -> None:
    returned = results.as_dict(made)
    assert json.loads(results.as_json(made)) == returned
    assert msgspec.convert(returned, results.ToolReturn) == returned


def test_documented_typescript_has_the_fields_of_the_schema() -> None:
    interface = (ROOT / "docs/recorder.md").read_text().partition("interface ToolReturn {")[2].partition("}")[0]
    fields = re.findall(r"^  (\w+)(\??): (.*);$", interface, re.MULTILINE)
    schema = results.json_schema()
    assert {name for name, _optional, _type in fields} == set(schema["properties"])
    assert [name for name, optional, _type in fields if not optional] == schema["required"]
    assert set(re.findall(r'"(\w+)"', fields[0][2])) == set(schema["properties"]["status"]["enum"])


def test_search_results_are_the_list_in_the_data() -> None:
    assert results.search_results(MADE[0]) == [{"id": 1}]
    assert results.search_results(results.read('{"success": true, "data": {"results": []}}')) == []


@pytest.mark.parametrize(
    "data", [None, {}, [], "results", {"results": None}, {"results": {"id": 1}}, {"results": "[]"}]
)
def test_search_results_of_other_data_raise(data: Any) -> None:
    with pytest.raises(results.InvalidData, match=r"^invalid results format$") as caught:
        results.search_results(results.success(data))
    assert caught.value.found == data


class Row(msgspec.Struct):
    id: int
    title: str = ""


def test_data_convert_to_a_type_or_raise() -> None:
    made = results.success([{"id": 1}, {"id": 2, "title": "b"}])
    assert results.data_as(made, list[Row]) == [Row(1), Row(2, "b")]
    with pytest.raises(results.InvalidData, match=r"Expected `int`, got `str` - at `\$\[0\]\.id`"):
        results.data_as(results.success([{"id": "x"}]), list[Row])


@pytest.mark.system
def test_results_work_without_django() -> None:
    code = "import sys; from tracesite_sdk import results; results.success(); print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
