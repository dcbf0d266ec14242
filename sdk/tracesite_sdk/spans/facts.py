"""The meaning of a span, independent of conventions: each convention fills in what it knows."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, items
from tracesite_sdk.normalize.pricing import is_amount, tokens_of, with_counts
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

from .observations import Kind
from .span import DEEPEST, Attributes

_OF_CACHE = {"cached_input_tokens", "cache_write_tokens"}

_NOTHING: tuple[Any, ...] = (None, "", [], {})


class Facts(Struct, kw_only=True):
    """The meaning of a span. None and {} mean that the convention does not say."""

    kind: Kind | None = None
    is_root_of_run: bool | None = None
    """Whether it is an agent or a workflow that may be a run of its own."""
    name: str | None = None
    input: Any = None
    """The messages of a generation in any shape of message_shapes.py, or an object with `messages`; the arguments of a tool."""
    output: Any = None
    agent_name: str | None = None
    tool_name: str | None = None
    call_id: str | None = None
    model: str | None = None
    response_id: str | None = None
    """The provider's id of a response: two spans with the same one are one request, seen by two libraries."""
    usage: dict[str, Any] | None = None
    cost: float | None = None
    """USD, if the producer knows it: of a generation, or of all that an agent or a chain used."""
    system: Any = None
    """The system prompt, tool schemas and parameters of a generation, as far as `input` does not hold them."""
    tools: list[Any] | None = None
    parameters: dict[str, Any] | None = None
    time_to_first_token: float | None = None
    """Milliseconds."""
    passages: list[records.Reference] | None = None
    """The passages that a retriever found."""
    error: str | None = None
    session_id: str | None = None
    end_user: str | None = None
    title: str | None = None
    tags: list[str] = []
    is_embedding: bool | None = None
    """Whether it is a request for the vectors of texts: these are no question, and no answer."""
    is_requested_call: bool | None = None
    """Whether the span stands for a call that its parent, a generation, requested; not for its execution."""
    is_trace: bool | None = None
    """Whether the span only names its trace, and has no time."""
    has_no_end: bool | None = None
    """Whether the span never ends by itself, but with what is below it."""
    is_pending: bool | None = None
    """Whether the span only announces another one, which has the id `parent_id`."""
    parent_id: str | None = None
    """The parent, if it is not that of the span."""
    metadata: dict[str, Any] = {}
    """Facts without a field: provider, finish reasons."""

    def filled_by(self, other: Facts) -> Facts:
        """Return these facts, with those of `other` for what is missing."""
        # An empty value becomes None if `other` has none either: it must not hide what is known in another way.
        missing = {
            name: others
            for name, own, others in zip(self.__struct_fields__, astuple(self), astuple(other), strict=True)
            if others is not own and own in _NOTHING
        }
        return replace(self, **(missing | {"metadata": {**other.metadata, **self.metadata}}))


def flattened_tools(attributes: Attributes, prefix: str) -> list[dict[str, Any]] | None:
    """Return the tools of attributes such as `llm.request.functions.0.name`; their parameters are JSON text."""
    tools = [fields(value) for value in items(listed(below(attributes, prefix)))]
    return [{name: decoded(item) for name, item in tool.items()} for tool in tools] or None


def first(attributes: Attributes, names: tuple[str, ...]) -> Any:
    """Return the first of the attributes that is there and not empty."""
    for name in names:
        if name in attributes and (value := attributes[name]) not in _NOTHING:
            return value
    return None


def first_text(attributes: Attributes, names: tuple[str, ...]) -> str | None:
    value = first(attributes, names)
    return value if isinstance(value, str) else None if value is None else str(value)


def below(attributes: Attributes, prefix: str) -> dict[str, Any]:
    """Rebuild the object that was flattened into attributes: `a.0.b` and `a.1.b` below `a.` become {"0": {"b"}, "1": ...}.

    What is deeper than a value may be keeps its dots.
    """
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *path, last = name[len(prefix) :].split(".", DEEPEST)
        node = tree
        for part in path:
            inner = node.get(part)
            if not isinstance(inner, dict):
                # A value and values below it under one name: the value is kept as "".
                inner = {} if inner is None else {"": inner}
                node[part] = inner
            node = inner
        if isinstance(node.get(last), dict):
            node[last][""] = value
        else:
            node[last] = value
    return tree


def listed(value: Any) -> Any:
    """Turn objects whose keys are all numbers into lists, at every level: in the order of the numbers, gaps close."""
    if not isinstance(value, dict):
        return value
    inner = {key: listed(item) for key, item in value.items()}
    if inner and all(key.isdecimal() and key.isascii() and len(key) < 10 for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    return inner


def milliseconds(value: Any, *, in_seconds: bool = False) -> float | None:
    """Return a duration in milliseconds; None for anything but a number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        return None
    return value * 1000 if in_seconds else value


def between(start: int, end: int) -> float | None:
    """Return the milliseconds between two times in nanoseconds; None if one is unknown or they are in the wrong order."""
    return (end - start) / 1e6 if 0 < start <= end else None


def cost(attributes: Attributes, total: tuple[str, ...], parts: tuple[str, ...] = ()) -> float | None:
    """Return the cost that attributes state: the total, or else the sum of its parts; None if they state none."""
    totals = [amount for name in total if (amount := _amount(attributes.get(name))) is not None]
    if totals:
        return totals[0]
    amounts = [amount for name in parts if (amount := _amount(attributes.get(name))) is not None]
    return sum(amounts) if amounts else None


def _amount(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return value if is_amount(value) else None


def usage(attributes: Attributes, names: dict[str, tuple[str, ...]]) -> dict[str, Any] | None:
    """Return the token counts by name, or None if there are none. Tokens under our names of cached ones are
    a part of the input, as OpenTelemetry has it."""
    counts = {name: count for name, aliases in names.items() if (count := first(attributes, aliases)) is not None}
    usage = with_counts(counts) or {}
    if "input_tokens" in usage and usage.keys() & _OF_CACHE and (tokens := tokens_of(usage)) is not None:
        # Bedrock and Anthropic have them beside the input, behind OpenTelemetry's names too.
        usage = {**usage, "input_tokens": tokens.input + tokens.cached_input + tokens.cache_write}
    return usage or None
