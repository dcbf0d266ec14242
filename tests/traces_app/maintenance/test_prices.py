"""Import of prices: the shipped file, files of the operator, and their errors."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from access_app.models import Project
from sdk.tests.paths import ROOT
from traces_app.ingest.prices import current_prices, forget_prices
from traces_app.maintenance.prices import SHIPPED, shipped_prices
from traces_app.models import ModelPrice

pytestmark = pytest.mark.django_db
ROW: dict[str, Any] = {"model": "m", "input": 2, "output": 10, "as_of": "2026-01-01"}


@pytest.fixture(autouse=True)
def no_prices(db: None) -> None:
    ModelPrice.objects.all().delete()
    forget_prices()


def imported(tmp_path: Path, content: object, name: str = "prices.json") -> str:
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    out = StringIO()
    call_command("import_prices", str(file), stdout=out)
    return out.getvalue()


def test_shipped_prices_are_imported_once() -> None:
    call_command("import_prices")
    first = list(ModelPrice.objects.order_by("pk").values_list())
    call_command("import_prices")
    assert list(ModelPrice.objects.order_by("pk").values_list()) == first
    assert len(first) == len(shipped_prices()) > 100


def test_shipped_prices_have_date_and_source() -> None:
    for row in shipped_prices():
        assert date(2025, 1, 1) <= row.as_of <= date(2026, 11, 23), row
        assert row.source.startswith("https://"), row
        assert row.input > 0 and row.output > 0, row
        assert (row.cached_input or 0) < row.input, row


@pytest.mark.parametrize(
    ("model", "input_price"),
    [
        ("gpt-4o-2024-08-06", "2.5"),
        ("openai/gpt-4o", "2.5"),
        ("gpt-4o-2024-05-13", "5"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "3"),
        ("anthropic/claude-opus-4.1", "15"),
        ("claude-opus-4-5-20251101", "5"),
        ("models/gemini-2.5-flash", "0.3"),
        ("us.meta.llama3-3-70b-instruct-v1:0", "0.72"),
        ("us.amazon.nova-2-lite-v1:0", "0.33"),
        ("global.amazon.nova-2-lite-v1:0", "0.3"),
        ("amazon.nova-pro-v1:0", "0.8"),
        ("magistral-medium-2509", "2"),
        ("gpt-4o-audio-preview", None),
        ("gpt-4-32k", None),
        ("llama3.3", None),
    ],
)
def test_shipped_price_is_found_by_name_of_provider(model: str, input_price: str | None) -> None:
    call_command("import_prices")
    found = current_prices().find(1, model, date(2026, 3, 1))
    assert (found and found.input) == (None if input_price is None else Decimal(input_price))


def test_price_that_changed_depends_on_the_day() -> None:
    call_command("import_prices")
    days = (date(2025, 6, 9), date(2025, 6, 10))
    assert [price and price.input for price in (current_prices().find(1, "o3", day) for day in days)] == [10, 2]


def test_first_migration_fills_empty_table() -> None:
    migration = import_module("traces_app.migrations.0001_initial")
    migration.fill_prices(apps, connection.schema_editor())
    assert ModelPrice.objects.count() == len(shipped_prices())
    ModelPrice.objects.exclude(model="gpt-4o").delete()
    migration.fill_prices(apps, connection.schema_editor())
    assert ModelPrice.objects.get().cached_input == Decimal("1.25")


def test_import_replaces_only_prices_that_are_not_newer(tmp_path: Path) -> None:
    assert "1 prices created, 0 updated, 0 unchanged, 0 kept" in imported(tmp_path, [ROW])
    assert "0 prices created, 0 updated, 1 unchanged" in imported(tmp_path, [ROW])
    assert "1 updated" in imported(tmp_path, [{**ROW, "input": 3, "as_of": "2026-02-01"}])
    assert "1 kept" in imported(tmp_path, [ROW])
    assert ModelPrice.objects.get().input == 3
    # The next write of this process uses it.
    found = current_prices().find(1, "m", date(2026, 1, 1))
    assert found is not None and found.input == 3


def test_csv_with_project_and_days_is_imported(tmp_path: Path, project: Project) -> None:
    content = "model,input,output,cached_input,valid_from,as_of,project\nM*,2,10,,2026-01-01,2026-01-01,owner\n m ,1.5,3,0.5,,2026-01-01,\n"
    assert "2 prices created" in imported(tmp_path, content, "prices.csv")
    stored = ModelPrice.objects.order_by("model").values_list("model", "project", "input", "cached_input", "valid_from")
    assert list(stored) == [
        ("m", None, Decimal("1.5"), Decimal("0.5"), None),
        ("m*", project.pk, Decimal(2), None, date(2026, 1, 1)),
    ]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ([ROW, {**ROW, "input": "x"}], "p.json", "line 8: "),
        ([{**ROW, "inptu": 1}], "p.json", "line 2: Object contains unknown field `inptu`"),
        ([{"model": "m"}], "p.json", "line 2: Object missing required field `input`"),
        ([{**ROW, "input": -1}], "p.json", "line 2: input: "),
        ([{**ROW, "input": "NaN"}], "p.json", "line 2: "),
        ([{**ROW, "input": 1e-9}], "p.json", "line 2: input: "),
        ([{**ROW, "model": "*"}], "p.json", "line 2: model: "),
        ([{**ROW, "model": "a*b"}], "p.json", "line 2: model: "),
        ([{**ROW, "valid_from": "2026-02-01", "valid_until": "2026-01-01"}], "p.json", "line 2: valid_until: "),
        ([{**ROW, "project": "none"}], "p.json", "line 2: project: there is no project 'none'"),
        ([ROW, ROW], "p.json", "line 8: model: the same model, project and first day as line 2"),
        ("{", "p.json", "Expected a JSON list of prices"),
        ("model,input,output,as_of\nm,2,x,2026-01-01\n", "p.csv", "line 2: "),
        ("model,input,output,as_of\nm,2,3,2026-01-01,9\n", "p.csv", "line 2: more values"),
        ("model,input,output,as_of\nm,2,3,today\n", "p.csv", "`$.as_of`"),
        ('model\n"', "p.csv", "line 1: unexpected end of data"),
    ],
)  # fmt: skip
def test_bad_file_is_refused_with_line_and_field(tmp_path: Path, content: object, name: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        imported(tmp_path, content, name)
    assert caught.value.returncode == 2
    assert message in str(caught.value) and str(caught.value).endswith("Nothing was stored.")
    assert not ModelPrice.objects.exists()


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        call_command("import_prices", str(tmp_path / "none.json"))


def test_shipped_file_is_in_the_package() -> None:
    assert SHIPPED.is_file() and '"*.json"' in (ROOT / "pyproject.toml").read_text()
