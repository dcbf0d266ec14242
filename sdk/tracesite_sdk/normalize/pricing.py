"""The cost of a request to a model: its tokens times the prices of the model.

Pure functions over records, so that ingest, `recompute_costs` and tests agree. docs/cost.md is for users.

**Which price** (`names_of`). A model is compared without case, by its whole name first and then by ever shorter ones:

1. without what stands before a `/`: `openai/gpt-4o`, `models/gemini-2.5-pro`, the ARN of an inference profile;
2. without the provider before a `:`: `anthropic:claude-sonnet-4-5`;
3. without the region and the vendor of Amazon Bedrock: `us.anthropic.claude-...`. Not `openai.`, whose prices differ there;
4. without the revision of Bedrock: `-v1:0`;
5. without a date (`-2024-08-06`, `-20250514`, `@20250514`) or `-latest`.

Claude is also found with a point in its version (`claude-sonnet-4.5`). Nothing else is cut off, because a wrong price is worse
than none: `gpt-4-0125-preview` costs a third of `gpt-4`. A price whose model ends in `*` is for all names that begin so. An
exact name goes before a pattern, a longer pattern before a shorter one, and any price of the project before those of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

_REGION = re.compile(r"^(?:global|us|us-gov|eu|apac|au|ca|jp|sa)\.(?=[a-z]+\.)")
_VENDOR = re.compile(r"^(?:anthropic|amazon|meta|mistral|deepseek|qwen)\.(?=[a-z])")
_PROVIDER = re.compile(
    r"^(?:openai|azure|azure_openai|anthropic|google|google_genai|google_vertexai|google-gla|google-vertex|gemini|vertex_ai"
    r"|bedrock|bedrock_converse|mistral|mistralai|deepseek|xai|grok|qwen|openrouter|litellm):(?=[a-z])"
)
_REVISION = re.compile(r"-v\d+(?::\d+){0,2}$")
_DATE = re.compile(r"(?:[-@]20\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])|-latest)$")
# No run uses a trillion tokens: a larger number is kept in the usage only, so that sums fit into their columns.
_MOST_TOKENS = 10**12
_MOST_FOUND = 4_096
_MILLION = Decimal(1_000_000)
_DIGITS = Decimal("1e-10")
"""The last digit of the columns."""
_TOO_MUCH = Decimal(10**10)
"""No request costs that: the columns cannot hold it."""

Path = tuple[str, ...]


TOKENS_IN = ("input_tokens", "prompt_tokens", "inputTokens", "promptTokens", "promptTokenCount")
TOKENS_OUT = ("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "candidatesTokenCount")


class _Paths(NamedTuple):
    """The places of the counts in a usage, as paths of keys; the first one that exists counts."""

    input: tuple[Path, ...]
    output: tuple[Path, ...]
    total: tuple[Path, ...]
    cached_inside: tuple[Path, ...]
    written_inside: tuple[Path, ...]
    cached_beside: tuple[Path, ...]
    written_beside: tuple[Path, ...]
    reasoning_inside: tuple[Path, ...]
    reasoning_beside: tuple[Path, ...]


_PATHS = _Paths(
    input=tuple((name,) for name in TOKENS_IN),
    output=tuple((name,) for name in TOKENS_OUT),
    total=(("total_tokens",), ("totalTokens",), ("totalTokenCount",), ("total",)),
    # Included in the input: OpenAI, OpenTelemetry, LangChain, Vercel, Gemini, DeepSeek, Inspect.
    cached_inside=(
        ("cached_input_tokens",),
        ("cache_read_tokens",),
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("input_token_details", "cache_read"),
        ("cached_tokens",),
        ("cachedInputTokens",),
        ("inputTokenDetails", "cacheReadTokens"),
        ("cachedContentTokenCount",),
        ("cached",),
        ("prompt_cache_hit_tokens",),
        ("cached_prompt_text_tokens",),
        ("input_tokens_cache_read",),
        ("prompt_details.cache_read",),
    ),
    written_inside=(
        ("cache_write_tokens",),
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("input_token_details", "cache_creation"),
        ("inputTokenDetails", "cacheWriteTokens"),
        ("input_tokens_cache_write",),
        ("prompt_details.cache_write",),
    ),
    # Beside the input: Anthropic, Bedrock, pi, OpenCode, Langfuse.
    cached_beside=(
        ("cache_read_input_tokens",),
        ("cacheReadInputTokens",),
        ("cacheRead",),
        ("cache", "read"),
        ("input_cached_tokens",),
        ("input_cache_read",),
    ),
    written_beside=(
        ("cache_creation_input_tokens",),
        ("cache_write_input_tokens",),
        ("cacheWriteInputTokens",),
        ("cacheWrite",),
        ("cache", "write"),
        ("input_cache_creation",),
    ),
    reasoning_inside=(
        ("reasoning_tokens",),
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_token_details", "reasoning"),
        ("reasoning_output_tokens",),
        ("reasoningTokens",),
        ("outputTokenDetails", "reasoningTokens"),
        ("completion_details.reasoning",),
    ),
    # Gemini, OpenCode, Langfuse.
    reasoning_beside=(("thoughtsTokenCount",), ("thoughts",), ("reasoning",), ("output_reasoning_tokens",)),
)
_KNOWN = frozenset(path for paths in _PATHS for path in paths)
_KEYS = frozenset(path[0] for path in _KNOWN)
# Spring AI sends all counts as texts; JSON of PHP, Ruby and Lua makes doubles of numbers.
_COUNT = re.compile(r"\d{1,13}(?:\.0*)?")
# What it cost, where a provider or a producer says so: OpenRouter, OpenCode, ATIF, pi.
_COST = (("cost",), ("cost", "total"), ("total_cost",), ("cost_usd",), ("costUSD",))


class Tokens(NamedTuple):
    """The tokens of a request, each counted once."""

    input: int
    """Neither read from a cache nor written to one."""
    cached_input: int
    cache_write: int
    output: int
    """Without those of reasoning, if they are known."""
    reasoning: int


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a model, in USD per million tokens."""

    model: str
    """A name in lower case, or the beginning of names with a `*`."""
    project_id: int | None = None
    valid_from: date | None = None
    valid_until: date | None = None
    """The last day."""
    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    """None: the same as `input`."""
    cache_write: Decimal | None = None
    """None: the same as `input`."""
    reasoning: Decimal | None = None
    """None: the same as `output`."""

    def of(self, tokens: Tokens) -> Decimal | None:
        """Return the cost in USD, or None where the columns cannot hold it."""
        cost = (
            tokens.input * self.input
            + tokens.cached_input * (self.input if self.cached_input is None else self.cached_input)
            + tokens.cache_write * (self.input if self.cache_write is None else self.cache_write)
            + tokens.output * self.output
            + tokens.reasoning * (self.output if self.reasoning is None else self.reasoning)
        ) / _MILLION
        return cost.quantize(_DIGITS) if cost < _TOO_MUCH else None

    def is_valid(self, day: date) -> bool:
        return (self.valid_from is None or self.valid_from <= day) and (
            self.valid_until is None or day <= self.valid_until
        )


@dataclass(kw_only=True)
class PriceTable:
    """All prices, arranged for look-ups by model."""

    prices: Iterable[Price]
    _exact: dict[tuple[int | None, str], list[Price]] = field(init=False, default_factory=dict)
    _patterns: dict[int | None, list[tuple[str, list[Price]]]] = field(init=False, default_factory=dict)
    _found: dict[tuple[int, str, date], Price | None] = field(init=False, default_factory=dict)
    """The last look-ups."""

    def __post_init__(self) -> None:
        patterns: dict[int | None, dict[str, list[Price]]] = {}
        # The latest first: of two that are valid on a day, it counts.
        for price in sorted(self.prices, key=lambda price: price.valid_from or date.min, reverse=True):
            if price.model.endswith("*"):
                patterns.setdefault(price.project_id, {}).setdefault(price.model[:-1], []).append(price)
            else:
                self._exact.setdefault((price.project_id, price.model), []).append(price)
        for project_id, by_pattern in patterns.items():
            self._patterns[project_id] = sorted(by_pattern.items(), key=lambda item: -len(item[0]))

    def find(self, project_id: int, model: str, day: date) -> Price | None:
        """Return the price of a model on a day (UTC)."""
        if not (self._exact or self._patterns) or not model:
            return None
        key = project_id, model, day
        price = self._found.get(key, self)
        if isinstance(price, PriceTable):
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            price = self._found[key] = self._find(*key)
        return price

    def _find(self, project_id: int, model: str, day: date) -> Price | None:
        names = list(names_of(model))
        for owner in (project_id, None):
            for name in names:
                if (price := _valid(self._exact.get((owner, name), ()), day)) is not None:
                    return price
            for beginning, prices in self._patterns.get(owner, ()):
                if any(name.startswith(beginning) for name in names) and (price := _valid(prices, day)) is not None:
                    return price
        return None

    def cost(self, project_id: int, model: str, usage: dict[str, Any] | None, day: date) -> Decimal | None:
        """Return the cost of a request in USD; None if its tokens, also those of its input alone, or the price are unknown."""
        tokens = tokens_of(usage)
        # Every request has an input, which mostly costs more than the output.
        if tokens is None or not (tokens.input or tokens.cached_input or tokens.cache_write):
            return None
        price = self.find(project_id, model, day)
        return None if price is None else price.of(tokens)


def _valid(prices: Iterable[Price], day: date) -> Price | None:
    return next((price for price in prices if price.is_valid(day)), None)


def names_of(model: str) -> Iterator[str]:
    """Return the names by which a price of a model is looked up, the most specific one first."""
    name = model.strip().lower()
    yield from _with_hyphens(name)
    for cut in (_after_last_slash, _PROVIDER, _REGION, _VENDOR, _REVISION, _DATE):
        shorter = cut.sub("", name) if isinstance(cut, re.Pattern) else cut(name)
        if shorter and shorter != name:
            name = shorter
            yield from _with_hyphens(name)


def _after_last_slash(name: str) -> str:
    return name.rpartition("/")[2]


def _with_hyphens(name: str) -> Iterator[str]:
    yield name
    if name.startswith("claude-") and "." in name:
        yield name.replace(".", "-")


def tokens(usage: dict[str, Any] | None) -> tuple[int, int]:
    """Return the input and output tokens of a usage, under any provider's names for them; 0 if missing."""
    if not usage:
        return 0, 0
    return _count(usage, _PATHS.input) or 0, _count(usage, _PATHS.output) or 0


def with_counts(usage: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a usage whose counts are integers, also those that were sent as text ("1000") or as doubles (1000.0): the same
    object if all are."""
    return _with_counts(usage) if usage else usage


def _with_counts(usage: dict[str, Any], *path: str) -> dict[str, Any]:
    counts = {
        name: count
        for name, value in usage.items()
        if type(value) is not int and (path or name in _KEYS) and (count := _as_count(value, *path, name)) is not value
    }
    return {**usage, **counts} if counts else usage


def _as_count(value: Any, *path: str) -> Any:
    """Return a count as an integer, details with such counts, and any other value as it is."""
    if isinstance(value, dict) and len(path) == 1:
        return _with_counts(value, *path)
    text = str(value) if isinstance(value, (float, str)) and path in _KNOWN else ""
    return int(text.partition(".")[0]) if text.isascii() and _COUNT.fullmatch(text) else value


def tokens_of(usage: dict[str, Any] | None) -> Tokens | None:
    """Return the tokens of a usage in any provider's form, or None if it has neither input nor output tokens.

    Some count cached tokens as a part of the input (OpenAI, OpenTelemetry), others beside it (Anthropic, Bedrock). The total
    says which, or else the names.
    """
    if not usage:
        return None
    paths = _paths(tuple(key for key in usage if key in _KEYS))
    given, output = _count(usage, paths.input), _count(usage, paths.output)
    if not (given or output):
        return None
    given, output = given or 0, output or 0
    cached, written = _count(usage, paths.cached_inside), _count(usage, paths.written_inside)
    is_inside = cached is not None or written is not None
    cached = _count(usage, paths.cached_beside) or 0 if cached is None else cached
    written = _count(usage, paths.written_beside) or 0 if written is None else written
    of_cache = cached + written
    total = _count(usage, paths.total) if of_cache else None
    # Libraries use the names of either way for the other.
    if total in (given + output, given + output + of_cache):
        is_inside = total == given + output
    if is_inside and of_cache <= given:
        given -= of_cache
    reasoning = _count(usage, paths.reasoning_inside)
    if reasoning is None:
        reasoning = _count(usage, paths.reasoning_beside) or 0
    # xAI counts it beside the completion, under OpenAI's name.
    elif _count(usage, paths.total) != (_count(usage, paths.input) or 0) + output + reasoning:
        reasoning = min(reasoning, output)
        output -= reasoning
    return Tokens(given, cached, written, output, reasoning)


@lru_cache(maxsize=256)
def _paths(keys: tuple[str, ...]) -> _Paths:
    """Return the paths that a usage with these keys can have, because producers use few forms and there are many names."""
    return _Paths(*(tuple(path for path in paths if path[0] in keys) for paths in _PATHS))


def stated_cost(cost: float | None, usage: dict[str, Any] | None) -> Decimal | None:
    """Return the cost that a producer states, in a field of its own or in the usage; None if it states none.

    A 0 in the usage states nothing: OpenCode, pi and Langfuse write it for models whose price they do not know.
    """
    if cost is None and usage:
        cost = next((stated for path in _COST if is_amount(stated := _value(usage, path)) and stated), None)
    if cost is None:
        return None
    amount = Decimal(str(cost))
    return amount.quantize(_DIGITS) if 0 <= amount < _TOO_MUCH else None


def is_amount(value: Any) -> bool:
    """Return whether a value is a number that a cost can be; not NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _TOO_MUCH


def _value(usage: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _count(usage: dict[str, Any], paths: Iterable[tuple[str, ...]]) -> int | None:
    for path in paths:
        count = usage.get(path[0]) if len(path) == 1 else _value(usage, path)
        if type(count) is int and 0 <= count <= _MOST_TOKENS:
            return count
    return None
