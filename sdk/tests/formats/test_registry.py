"""The registry of formats."""

from __future__ import annotations

from pathlib import Path

from tracesite_sdk.formats import registry


def test_registry_has_every_format_once() -> None:
    modules = {path.stem for path in Path(registry.__file__).parent.glob("*.py")} - {"__init__", "registry"}
    expected = sorted(["tracesite_sdk.eko.transcripts", *(f"tracesite_sdk.formats.{module}" for module in modules)])
    assert sorted(format_.__name__ for format_ in registry.FORMATS) == expected  # type: ignore[attr-defined]


def test_registry_names_are_unique() -> None:
    assert len({format_.NAME for format_ in registry.FORMATS}) == len(registry.FORMATS)
