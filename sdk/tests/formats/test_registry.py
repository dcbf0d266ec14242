"""The registry of formats."""

from __future__ import annotations

from pathlib import Path

from tracesite_sdk.formats import registry


def test_registry_has_every_format_once() -> None:
    modules = {path.stem for path in Path(registry.__file__).parent.glob("*.py")} - {"__init__", "registry"}
    expected = sorted(["tracesite_sdk.eko.transcripts", *(f"tracesite_sdk.formats.{module}" for module in modules)])
    registered = [format_.__name__ for format_ in registry.FORMATS]  # type: ignore[attr-defined]
    assert set(expected) - set(registered) == set(), (
        "Import these modules in registry.py, and give them a place in FORMATS."
    )
    assert sorted(registered) == expected
    untested = [module for module in modules if not (Path(__file__).parent / f"test_{module}.py").exists()]
    assert untested == [], "Each format has its tests beside this file."


def test_registry_names_are_unique() -> None:
    assert len({format_.NAME for format_ in registry.FORMATS}) == len(registry.FORMATS)
