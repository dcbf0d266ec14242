"""Results of tools, well formed from the start: for tools to return, and for agents to read.

    from tracesite.recorder import results

    def query(sql: str) -> str:
        try:
            rows = run(sql)
        except DatabaseError as failure:
            return results.as_json(results.error(str(failure), error_type="database", suggestion="Check the table."))
        return results.as_json(results.success({"results": rows}, f"{len(rows)} rows", execution_time=0.2))

A result made here is in the one form that every result gets when it is stored: normalise changes nothing of it. Whatever
is said besides is metadata.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from traces_app.normalize.tool_results import NO_REASON, normalize_result
from traces_app.schema import records

T = TypeVar("T")


class InvalidData(ValueError):
    """The data of a result are not what was asked for; `found` is what they are."""

    def __init__(self, message: str, found: Any) -> None:
        super().__init__(message)
        self.found = found


def success(data: Any = None, output: str = "", **metadata: Any) -> records.ToolResult:
    """The call did what it should: `data` for machines, `output` for people."""
    return _made("success", data=data, output=output, metadata=metadata)


def error(message: str, *, data: Any = None, output: str = "", **metadata: Any) -> records.ToolResult:
    """The call failed, and `message` says why. `error_type`, `suggestion`, `troubleshooting` and `details` are usual."""
    return _made("error", data=data, output=output, error=message or NO_REASON, metadata=metadata)


def pending(output: str = "", **metadata: Any) -> records.ToolResult:
    """The call goes on; its result comes later, under the same id."""
    return _made("pending", output=output, metadata=metadata)


def read(received: Any) -> records.ToolResult:
    """Whatever a tool returned, in the one form."""
    result = normalize_result(
        received if isinstance(received, records.ToolResult) else records.ToolResult(output=received), None
    )
    assert result is not None, "only the absence of a result is none"
    return result


def as_json(result: records.ToolResult) -> str:
    """A result as tools return it to a model: JSON without what it does not say, non-ASCII characters as they are."""
    fields = msgspec.structs.asdict(result)
    return msgspec.json.encode({name: value for name, value in fields.items() if value not in (None, "", {})}).decode()


def data_as(result: records.ToolResult, type_: type[T]) -> T:
    """The data of a result as a type: a dataclass, a msgspec Struct, `list[str]`. Raises InvalidData where they are not."""
    try:
        return msgspec.convert(result.data, type_)
    except msgspec.ValidationError as failure:
        raise InvalidData(str(failure), result.data) from failure


def search_results(result: records.ToolResult) -> list[Any]:
    """What a search found: the list under `results` in the data. Raises InvalidData where there is none."""
    found = result.data.get("results") if isinstance(result.data, dict) else None
    if not isinstance(found, list):
        raise InvalidData("invalid results format", result.data)
    return found


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
