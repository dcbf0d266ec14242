"""The registry of formats."""

from __future__ import annotations

from pathlib import Path

from sdk.tests.paths import ROOT
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


WRITTEN_ONCE = {"otlp", "own_export", "toolbench"}
"""Formats of files that nobody goes on writing."""


def test_each_format_is_tried_with_broken_and_growing_documents() -> None:
    tests = {path.stem.removeprefix("test_"): path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    imported = (ROOT / "tests/traces_app/imports/test_import_growth.py").read_text()
    del tests["registry"]
    assert [name for name, text in tests.items() if "mangled" not in text] == []
    growing = {name for name, text in tests.items() if "assert_grows(" in text or f"test_{name}" in imported}
    assert tests.keys() - growing == WRITTEN_ONCE, (
        "Use assert_grows, and for one JSON value that grows a line in test_import_growth.py."
    )


def test_registry_names_are_unique() -> None:
    assert len({format_.NAME for format_ in registry.FORMATS}) == len(registry.FORMATS)
