"""Import prices of models: those that Tracesite ships, or a JSON or CSV file of the operator.

A file is stored whole or not at all. A row is identified by its project, model and first day; a price that was read later
than that of the file stays, so that prices corrected by hand survive the next import.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
from django.core.exceptions import ValidationError

from access_app.db import primary
from access_app.models import Project
from traces_app.ingest.prices import forget_prices
from traces_app.models import ModelPrice

SHIPPED = Path(__file__).with_name("model_prices.json")
"""Published prices of common models, each with the day on which it was read."""
MOST_ERRORS = 20


class PriceRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One price of a file, with the names of ModelPrice; `project` is a slug."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    input: Decimal
    output: Decimal
    as_of: date
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    valid_from: date | None = None
    valid_until: date | None = None
    source: str = ""
    project: str | None = None


@dataclass(kw_only=True)
class Imported:
    """The numbers of prices of a file."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    kept: int = 0
    """Prices that were read later than those of the file."""


class BadPrices(Exception):
    """Refuse a file of prices: one line for each problem, with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def shipped_prices() -> list[PriceRow]:
    """Return the prices that Tracesite ships."""
    return [row for _place, row in read_prices_file(SHIPPED.read_bytes())]


def read_prices_file(content: bytes, *, is_csv: bool = False) -> list[tuple[str, PriceRow]]:
    """Return the prices of a file, each with its place. Raise BadPrices."""
    rows, problems = [], []
    for place, values in _from_csv(content) if is_csv else _from_json(content):
        try:
            rows.append((place, msgspec.convert(values, PriceRow, strict=not is_csv)))
        except msgspec.ValidationError as error:
            problems.append(f"{place}: {error}")
    if problems:
        raise BadPrices(problems[:MOST_ERRORS])
    return rows


def import_prices(rows: Sequence[tuple[str, PriceRow]]) -> Imported:
    """Store prices; return how many were created, updated and left. Raise BadPrices, and store nothing."""
    projects = dict(Project.objects.values_list("slug", "pk"))
    wanted, problems = _checked(rows, projects)
    if problems:
        raise BadPrices(problems[:MOST_ERRORS])
    imported = Imported()
    with primary.atomic():
        stored = {_key(price): price for price in ModelPrice.objects.order_by("pk").select_for_update()}
        for key, price in wanted.items():
            known = stored.get(key)
            if known is None:
                price.save(force_insert=True)
                imported.created += 1
            elif _values(known) == _values(price):
                imported.unchanged += 1
            elif known.as_of > price.as_of:
                imported.kept += 1
            else:
                price.pk = known.pk
                price.save(force_update=True)
                imported.updated += 1
    forget_prices()
    return imported


def _checked(
    rows: Sequence[tuple[str, PriceRow]], projects: Mapping[str, int]
) -> tuple[dict[tuple[Any, ...], ModelPrice], list[str]]:
    wanted: dict[tuple[Any, ...], ModelPrice] = {}
    places: dict[tuple[Any, ...], str] = {}
    problems = []
    for place, row in rows:
        fields = msgspec.structs.asdict(row)
        slug = fields.pop("project")
        if slug and slug not in projects:
            problems.append(f"{place}: project: there is no project {slug!r}")
            continue
        price = ModelPrice(**fields, project_id=projects[slug] if slug else None)
        try:
            price.clean_fields(exclude=["project"])
            price.clean()
        except ValidationError as error:
            for field, messages in error.message_dict.items():
                problems.append(f"{place}: {field}: {' '.join(messages)}")
            continue
        key = _key(price)
        if key in wanted:
            problems.append(f"{place}: model: the same model, project and first day as {places[key]}")
        wanted[key], places[key] = price, place
    return wanted, problems


def _key(price: ModelPrice) -> tuple[Any, ...]:
    return price.project_id, price.model, price.valid_from


def _values(price: ModelPrice) -> list[Any]:
    return [getattr(price, name) for name in PriceRow.__struct_fields__ if name != "project"]


def _from_json(content: bytes) -> Iterator[tuple[str, Any]]:
    try:
        items = msgspec.json.decode(content, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPrices([f"Expected a JSON list of prices: {error}"]) from error
    at = 0
    for item in items:
        text = bytes(item)
        at = content.index(text, at)
        line = content.count(b"\n", 0, at) + 1
        yield f"line {line}", msgspec.json.decode(text)
        at += len(text)


def _from_csv(content: bytes) -> Iterator[tuple[str, Any]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadPrices([f"Expected UTF-8: {error}"]) from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row:
                raise BadPrices([f"line {reader.line_num}: more values than the header has names"])
            yield (
                f"line {reader.line_num}",
                {name: value.strip() for name, value in row.items() if value and value.strip()},
            )
    except csv.Error as error:
        raise BadPrices([f"line {reader.line_num}: {error}"]) from error
