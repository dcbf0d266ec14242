"""Fields that records do not have: kept as metadata, or dropped because the server derives them."""

from __future__ import annotations

from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.extra_fields import move_extra_fields_to_metadata


def test_cost_of_a_producer_is_kept_and_a_computed_one_is_not() -> None:
    document: dict[str, Any] = {"role": "user", "cost": 0.5}
    move_extra_fields_to_metadata(document, records.Message)
    assert document == {"role": "user", "metadata": {"cost": 0.5}}
    document = {"role": "user", "cost": 0.5, "unpriced_count": 0}
    move_extra_fields_to_metadata(document, records.Message)
    assert document == {"role": "user"}


def test_derived_fields_are_dropped_and_others_kept() -> None:
    document = {"role": "user", "version": 3, "color": "red"}
    move_extra_fields_to_metadata(document, records.Message)
    assert document == {"role": "user", "metadata": {"color": "red"}}
