"""A decoder as strict as WeKnora's Go client, and the structs that the client decodes.

Written from the observed behaviour: the client accepts unknown fields and null everywhere, and rejects a whole response if one
field has an unexpected type: a number with a decimal point for an integer, a time without a zone, a string for an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

Int64 = NewType("Int64", int)
Uint64 = NewType("Uint64", int)
Time = NewType("Time", str)

T = TypeVar("T")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


class NotDecodable(Exception):
    """The client could not decode this; the text names the path in the response and the value."""


class Decimal(str):
    """A number written with a point or an exponent, even if it is integral."""


@dataclass
class SearchResult:
    id: str = ""
    content: str = ""
    knowledge_id: str = ""
    chunk_index: Int64 = Int64(0)
    knowledge_title: str = ""
    start_at: Int64 = Int64(0)
    end_at: Int64 = Int64(0)
    seq: Int64 = Int64(0)
    score: float = 0.0
    match_type: Int64 = Int64(0)
    sub_chunk_id: list[str] | None = None
    metadata: dict[str, str] | None = None
    chunk_type: str = ""
    parent_chunk_id: str = ""
    image_info: str = ""
    knowledge_filename: str = ""
    knowledge_source: str = ""


@dataclass
class ToolResult:
    success: bool = False
    output: str = ""
    data: dict[str, Any] | None = None
    error: str = ""
    images: list[str] | None = None


@dataclass
class ToolCall:
    id: str = ""
    name: str = ""
    args: dict[str, Any] | None = None
    result: ToolResult | None = None
    reflection: str = ""
    duration: Int64 = Int64(0)


@dataclass
class AgentStep:
    iteration: Int64 = Int64(0)
    thought: str = ""
    tool_calls: list[ToolCall] | None = None
    timestamp: Time = Time("")


@dataclass
class Message:
    id: str = ""
    session_id: str = ""
    request_id: str = ""
    content: str = ""
    role: str = ""
    knowledge_references: list[SearchResult] | None = None
    agent_steps: list[AgentStep] | None = None
    is_completed: bool = False
    channel: str = ""
    created_at: Time = Time("")
    updated_at: Time = Time("")


@dataclass
class Session:
    id: str = ""
    tenant_id: Uint64 = Uint64(0)
    title: str = ""
    description: str = ""
    created_at: str = ""
    updated_at: str = ""


@dataclass
class MessageList:
    success: bool = False
    data: list[Message] | None = None


@dataclass
class OneSession:
    success: bool = False
    data: Session | None = None


@dataclass
class SessionList:
    success: bool = False
    data: list[Session] | None = None
    total: Int64 = Int64(0)
    page: Int64 = Int64(0)
    page_size: Int64 = Int64(0)


@dataclass
class Done:
    success: bool = False
    message: str = ""


@dataclass
class Title:
    success: bool = False
    data: str = ""


@dataclass
class Pinned:
    success: bool = False
    is_pinned: bool = False


@dataclass
class StreamResponse:
    id: str = ""
    response_type: str = ""
    content: str = ""
    done: bool = False
    knowledge_references: list[SearchResult] | None = None
    session_id: str = ""
    assistant_message_id: str = ""
    tool_calls: list[dict[str, Any]] | None = None
    data: dict[str, Any] | None = None


def decode(body: bytes | str, type_: type[T]) -> T:
    """Decode a response. Raises NotDecodable."""
    try:
        value = json.loads(body, parse_float=Decimal)
    except ValueError as error:
        raise NotDecodable(f"no JSON: {body[:200]!r}") from error
    decoded: T = _decoded(value, type_, type_.__name__)
    return decoded


def code_of(body: bytes) -> int:
    """Return the top-level code of an error; 0 if there is none, as in the client."""
    try:
        value = json.loads(body)
    except ValueError:
        return 0
    code = value.get("code") if isinstance(value, dict) else None
    return code if isinstance(code, int) else 0


def frames_of(stream: bytes, most_bytes: int = 64 * 1024) -> list[StreamResponse]:
    """Decode a stream like the client: a frame needs a line `event:message`, without a space, and one data line.

    Raises NotDecodable for a line longer than the client reads.
    """
    found: list[StreamResponse] = []
    event, data = "", ""
    for raw in stream.split(b"\n"):
        if len(raw) >= most_bytes:
            raise NotDecodable(f"a line of {len(raw)} bytes")
        line = raw.decode().removesuffix("\r")
        if not line:
            if data and event == "message":
                found.append(decode(data, StreamResponse))
            event, data = "", ""
        if line.startswith("event:"):
            event = line[len("event:") :]
        if line.startswith("data:"):
            data = line[len("data:") :]
    return found


def _decoded(value: Any, type_: Any, path: str) -> Any:
    if value is None:
        return None  # Go keeps the zero value
    wrong = NotDecodable(f"{path}: {str(value)[:100]!r} ({type(value).__name__}) is no {type_}")
    if get_origin(type_) in (UnionType, Union):
        (type_,) = (one for one in get_args(type_) if one is not type(None))
    if is_dataclass(type_):
        if not isinstance(value, dict):
            raise wrong
        hints = get_type_hints(type_)
        values = {
            one.name: _decoded(value[one.name], hints[one.name], f"{path}.{one.name}")
            for one in fields(type_)
            if value.get(one.name) is not None
        }
        return type_(**values)  # type: ignore[operator]  # a class
    if get_origin(type_) is list:
        if not isinstance(value, list):
            raise wrong
        return [_decoded(item, get_args(type_)[0], f"{path}[{at}]") for at, item in enumerate(value)]
    if get_origin(type_) is dict:
        if not isinstance(value, dict):
            raise wrong
        return {name: _decoded(item, get_args(type_)[1], f"{path}.{name}") for name, item in value.items()}
    if type_ is Any:
        return value
    if not _KINDS[type_](value):
        raise wrong
    return float(value) if type_ is float else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or isinstance(value, Decimal) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(re.sub(r"\.\d+", "", value))
    except ValueError:
        return False
    return True


_KINDS: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str) and not isinstance(value, Decimal),
    bool: lambda value: isinstance(value, bool),
    float: lambda value: _is_whole(value) or isinstance(value, Decimal),
    Int64: lambda value: _is_whole(value) and -(2**63) <= value < 2**63,
    Uint64: lambda value: _is_whole(value) and 0 <= value < 2**64,
    Time: _is_time,
}
