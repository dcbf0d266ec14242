"""Well-formed results of tools: for tools to return, and for agents to read.

    from tracesite_sdk import results

    def query(sql: str) -> str:
        try:
            rows = run(sql)
        except DatabaseError as failure:
            return results.as_json(results.error(str(failure), error_type="database", suggestion="Check the table."))
        return results.as_json(results.success({"results": rows}, f"{len(rows)} rows", execution_time=0.2))

Every result is stored in this form, so normalisation does not change a result that is made here. Additional keyword
arguments become metadata. `ToolReturn` is the type of a tool that returns one as a dict (`as_dict`), `json_schema()` its schema.
"""

from __future__ import annotations

from typing import Any, Required, TypedDict, TypeVar, cast

import msgspec

from tracesite_sdk import records
from tracesite_sdk.normalize.tool_results import NO_REASON, normalize_result

T = TypeVar("T")


class ToolReturn(TypedDict, total=False):
    """What a tool returns."""

    status: Required[records.CallStatus]
    success: bool
    """Whether the status is `success`."""
    output: str
    """For people and models."""
    data: Any
    """For machines: any JSON."""
    error: str
    """Why it failed."""
    metadata: dict[str, Any]


class InvalidData(ValueError):
    """The data of a result do not have the expected type; `found` holds them."""

    def __init__(self, message: str, found: Any) -> None:
        super().__init__(message)
        self.found = found


def success(data: Any = None, output: str = "", **metadata: Any) -> records.ToolResult:
    """Return a successful result: `data` for machines, `output` for people."""
    return _made("success", data=data, output=output, metadata=metadata)


def error(message: str, *, data: Any = None, output: str = "", **metadata: Any) -> records.ToolResult:
    """Return a failed result with the reason. Usual metadata: `error_type`, `suggestion`, `troubleshooting`, `details`."""
    return _made("error", data=data, output=output, error=message or NO_REASON, metadata=metadata)


def pending(output: str = "", **metadata: Any) -> records.ToolResult:
    """Return the result of a call that goes on; the final result comes later, under the same id."""
    return _made("pending", output=output, metadata=metadata)


def read(received: Any) -> records.ToolResult:
    """Normalise any return value of a tool."""
    result = normalize_result(
        received if isinstance(received, records.ToolResult) else records.ToolResult(output=received), None
    )
    assert result is not None, "only a missing result is None"
    return result


def as_dict(result: records.ToolResult) -> ToolReturn:
    """Return a result as a dict, without empty fields."""
    fields = msgspec.structs.asdict(result)
    return cast("ToolReturn", {name: value for name, value in fields.items() if value not in (None, "", {})})


def as_json(result: records.ToolResult) -> str:
    """Return a result as JSON for a model, without empty fields, with non-ASCII characters unescaped."""
    return msgspec.json.encode(as_dict(result)).decode()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of ToolReturn, for validators and generators of other languages."""
    _refs, types = msgspec.json.schema_components([ToolReturn])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **types[ToolReturn.__name__]}


def data_as(result: records.ToolResult, type_: type[T]) -> T:
    """Convert the data of a result to a type: a dataclass, a msgspec Struct, `list[str]`. Raises InvalidData."""
    try:
        return msgspec.convert(result.data, type_)
    except msgspec.ValidationError as failure:
        raise InvalidData(str(failure), result.data) from failure


def search_results(result: records.ToolResult) -> list[Any]:
    """Return the hits of a search: the list under `results` in the data. Raises InvalidData if there is none."""
    results = result.data.get("results") if isinstance(result.data, dict) else None
    if not isinstance(results, list):
        raise InvalidData("invalid results format", result.data)
    return results


def _made(
    status: records.CallStatus, *, output: str, metadata: dict[str, Any], data: Any = None, error: str = ""
) -> records.ToolResult:
    return records.ToolResult(
        status=status,
        success=status == "success",
        output=output,
        data=data,
        error=error,
        metadata=metadata or None,
    )
