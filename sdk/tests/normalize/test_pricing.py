"""The cost of a request: which price a model has, and what its tokens are in the forms of the providers."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from tracesite_sdk.normalize.pricing import (
    Price,
    PriceTable,
    Tokens,
    names_of,
    stated_cost,
    tokens,
    tokens_of,
    with_counts,
)

DAY = date(2026, 5, 1)


def price(model: str, amount: int, **fields: Any) -> Price:
    return Price(model=model, input=Decimal(amount), output=Decimal(amount), **fields)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "gpt-4o"),
        ("GPT-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("azure/openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("openai:gpt-4o", "gpt-4o"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("amazon.nova-pro-v1:0", "nova-pro"),
    ],
)
def test_price_is_found_by_forms_of_model_name(model: str, name: str) -> None:
    table = PriceTable(prices=[price(name, 7), price("other", 1)])
    found = table.find(1, model, DAY)
    assert found is not None and found.input == 7


@pytest.mark.parametrize(
    ("model", "priced"),
    [
        ("gpt-4-0125-preview", "gpt-4"),
        ("gpt-4o-mini", "gpt-4o"),
        ("ft:gpt-4o:acme::1", "gpt-4o"),
        ("openai.gpt-5.4", "gpt-5.4"),
        ("gpt-4o-99991399", "gpt-4o"),
        ("llama3:8b", "llama3"),
        ("", "gpt-4o"),
    ],
)
def test_price_of_another_model_is_not_used(model: str, priced: str) -> None:
    assert PriceTable(prices=[price(priced, 7)]).find(1, model, DAY) is None


def test_price_most_specific_name_goes_first() -> None:
    table = PriceTable(
        prices=[price("gpt-4o", 2), price("gpt-4o-2024-05-13", 5), price("gpt-4*", 30), price("gpt*", 1)]
    )
    models = ("gpt-4o-2024-05-13", "openai/gpt-4o-2024-11-20", "gpt-4-turbo", "gpt-9")
    assert [found and found.input for found in (table.find(1, model, DAY) for model in models)] == [5, 2, 30, 1]


def test_price_of_project_goes_before_site() -> None:
    table = PriceTable(prices=[price("gpt-4o-2024-08-06", 2), price("gpt-4*", 9, project_id=1)])
    assert [table.find(project, "gpt-4o-2024-08-06", DAY).input for project in (1, 2)] == [9, 2]  # type: ignore[union-attr]


def test_price_is_that_of_the_day() -> None:
    table = PriceTable(
        prices=[
            price("m", 1, valid_until=date(2025, 12, 31)),
            price("m", 2, valid_from=date(2026, 1, 1), valid_until=date(2026, 6, 30)),
            price("m", 3, valid_from=date(2026, 6, 1)),
        ]
    )
    days = (date(2025, 12, 31), date(2026, 1, 1), date(2026, 6, 1), date(2030, 1, 1))
    assert [found and found.input for found in (table.find(1, "m", day) for day in days)] == [1, 2, 3, 3]
    assert PriceTable(prices=[price("m", 1, valid_from=DAY)]).find(1, "m", date(2026, 4, 30)) is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        # OpenAI: cached tokens are a part of the prompt, reasoning is a part of the completion.
        (
            {"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 80},
             "completion_tokens_details": {"reasoning_tokens": 30}},
            Tokens(20, 80, 0, 20, 30),
        ),
        ({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 5}, Tokens(20, 80, 0, 5, 0)),
        # Anthropic: beside the input.
        (
            {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 20, "output_tokens": 5},
            Tokens(10, 80, 20, 5, 0),
        ),
        # The names of Anthropic, but a total that includes the cached ones in the input.
        (
            {"input_tokens": 110, "cache_read_input_tokens": 80, "output_tokens": 5, "total_tokens": 115},
            Tokens(30, 80, 0, 5, 0),
        ),
        # OpenTelemetry and its relatives, as our conventions name them.
        (
            {"input_tokens": 110, "cached_input_tokens": 80, "cache_write_tokens": 20, "output_tokens": 5},
            Tokens(10, 80, 20, 5, 0),
        ),
        # Inspect, of which the total says which way its provider has
        (
            {"input_tokens": 110, "output_tokens": 5, "input_tokens_cache_read": 80, "total_tokens": 115},
            Tokens(30, 80, 0, 5, 0),
        ),
        (
            {"input_tokens": 90, "output_tokens": 5, "input_tokens_cache_read": 60, "input_tokens_cache_write": 20,
             "total_tokens": 175},
            Tokens(90, 60, 20, 5, 0),
        ),
        # Codex has the name of one way for what was read, of the other for what was written.
        (
            {"input_tokens": 110, "output_tokens": 5, "cached_input_tokens": 80, "cache_write_input_tokens": 20},
            Tokens(10, 80, 20, 5, 0),
        ),
        # LangChain
        (
            {"input_tokens": 110, "output_tokens": 9, "input_token_details": {"cache_read": 80, "cache_creation": 20},
             "output_token_details": {"reasoning": 4}},
            Tokens(10, 80, 20, 5, 4),
        ),
        # Bedrock
        ({"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 80, "cacheWriteInputTokens": 20}, Tokens(10, 80, 20, 5, 0)),
        # Gemini: thoughts are beside the candidates.
        (
            {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5, "thoughtsTokenCount": 7},
            Tokens(40, 60, 0, 5, 7),
        ),
        # xAI: reasoning is beside the completion, as the total shows.
        (
            {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 135,
             "completion_tokens_details": {"reasoning_tokens": 30}},
            Tokens(100, 0, 0, 5, 30),
        ),
        # OpenCode
        ({"input_tokens": 10, "output_tokens": 5, "reasoning": 4, "cache": {"read": 50, "write": 6}}, Tokens(10, 50, 6, 5, 4)),
        # A part that is larger than the whole stands beside it.
        ({"input_tokens": 10, "cached_input_tokens": 80, "output_tokens": 5}, Tokens(10, 80, 0, 5, 0)),
        ({"output_tokens": 5, "reasoning_tokens": 9}, Tokens(0, 0, 0, 0, 5)),
    ],
)  # fmt: skip
def test_tokens_of_providers_are_told_apart(usage: dict[str, Any], tokens: Tokens) -> None:
    assert tokens_of(usage) == tokens


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"total_tokens": 5}, {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": -1}, {"input_tokens": "9"},
     {"input_tokens": True}, {"input_tokens": 10**13}, {"input_tokens": {}, "prompt_tokens_details": 5}],
)  # fmt: skip
def test_cost_without_tokens_is_unknown(usage: dict[str, Any] | None) -> None:
    assert PriceTable(prices=[price("m", 1)]).cost(1, "m", usage, DAY) is None


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"output_tokens": 10}, None),
        ({"input_tokens": 0, "output_tokens": 10}, None),
        ({"cache_read_input_tokens": 10, "output_tokens": 10}, "0.000020"),
        ({"input_tokens": 10}, "0.000010"),
    ],
)
def test_request_of_which_only_the_output_is_known_has_no_cost(usage: dict[str, Any], cost: str | None) -> None:
    expected = None if cost is None else Decimal(cost)
    assert PriceTable(prices=[price("m", 1)]).cost(1, "m", usage, DAY) == expected


def test_cost_each_kind_of_token_has_its_price() -> None:
    whole = Price(
        model="m",
        input=Decimal(3),
        cached_input=Decimal("0.3"),
        cache_write=Decimal("3.75"),
        output=Decimal(15),
        reasoning=Decimal(20),
    )
    tokens = Tokens(1_000, 10_000, 100, 10, 1)
    assert whole.of(tokens) == Decimal("0.0065450000")  # 0.003 + 0.003 + 0.000375 + 0.00015 + 0.00002
    assert price("m", 2).of(tokens) == Decimal("0.022222")
    assert price("m", 10**7).of(Tokens(10**12, 0, 0, 0, 0)) is None  # no column holds it


@pytest.mark.parametrize(
    ("cost", "usage", "stated"),
    [
        (0.25, {"cost": 9}, "0.25"),
        (0, None, "0"),
        (None, {"cost": 0.1}, "0.1"),
        (None, {"cost": {"total": 0.5}}, "0.5"),
        (None, {"cost_usd": 1}, "1"),
        (None, {"cost": 0}, None),
        (None, {"cost": {"total": 0.0}, "cost_usd": 2}, "2"),
        (None, {"cost": "1"}, None),
        (None, {"cost": float("nan")}, None),
        (None, {"cost": -1}, None),
        (None, {"cost": True}, None),
        (None, None, None),
    ],
)
def test_stated_cost_is_read_of_field_or_usage(
    cost: float | None, usage: dict[str, Any] | None, stated: str | None
) -> None:
    assert stated_cost(cost, usage) == (None if stated is None else Decimal(stated))


def test_names_of_hostile_model_are_few() -> None:
    assert len(list(names_of("a/" * 100_000 + "." * 100_000 + "-v1:0-2024-08-06"))) < 20


def test_usage_of_integers_is_not_copied() -> None:
    usage = {
        "prompt_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 1, "other": None},
        "cost": 0.5,
        "total": None,
    }
    assert with_counts(usage) is usage


@pytest.mark.parametrize("count", ["1000", 1000.0, "1000.0", "1000."])
def test_count_that_is_text_or_double_is_a_count(count: object) -> None:
    usage = with_counts({"prompt_tokens": count, "prompt_tokens_details": {"cached_tokens": count, "other": "1000"}})
    assert usage == {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 1000, "other": "1000"}}
    assert tokens(with_counts({"promptTokenCount": count, "candidatesTokenCount": count})) == (1000, 1000)


@pytest.mark.parametrize(
    "value", ["", "-1", "1,000", "1e3", "ten", "1" * 14, "²", 1.5, -1.0, 1e300, float("nan"), True, None, [7]]
)
def test_value_that_is_no_count_is_kept(value: object) -> None:
    usage = {"input_tokens": value, "service_tier": "2", "cache": "12"}
    assert repr(with_counts(usage)) == repr(usage)


# Whether the names say that cached tokens lie inside the input or beside it: a total goes before them.
INSIDE = ("cached_input_tokens", "cache_write_tokens")
BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")


@pytest.mark.parametrize(
    ("names", "total", "is_inside"),
    [
        (INSIDE, None, True),
        (BESIDE, None, False),
        *((names, 5100, True) for names in (INSIDE, BESIDE)),
        *((names, 6300, False) for names in (INSIDE, BESIDE)),
        (INSIDE, 9999, True),
        (BESIDE, 9999, False),
    ],
)
def test_total_says_where_cached_tokens_are(names: tuple[str, str], total: int | None, is_inside: bool) -> None:
    usage = {"input_tokens": 5000, "output_tokens": 100, names[0]: 1000, names[1]: 200, "total_tokens": total}
    assert tokens_of(usage) == Tokens(3800 if is_inside else 5000, 1000, 200, 100, 0)
