"""Test that the docs list the settings, commands, routes, flags and formats of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.core.management import get_commands
from django.urls import URLPattern, URLResolver, get_resolver

from access_app.conf import Conf, SiteConf, settings_of
from messages_app.audit_log import AuditFilterSet
from sdk.tests.paths import ROOT
from traces_app.queries.filters import (
    CallFilterSet,
    ChainFilterSet,
    ErrorFilterSet,
    MessageFilterSet,
    ScoreFilterSet,
    SessionFilterSet,
    UsageFilterSet,
)
from traces_app.queries.tool_filters import ToolFilterSet
from tracesite.http.foreign_api import foreign_api_of
from tracesite_sdk.formats.registry import FORMATS
from tracesite_sdk.records.health_flags import FLAGS

DOCS = ROOT / "docs"
EKO = ROOT / "integrations" / "eko"
OURS = ("access_app", "messages_app", "traces_app", "tracesite")


def test_tables_of_settings_are_those_of_conf() -> None:
    ours = [*settings_of(Conf), *settings_of(SiteConf)]
    rows = {one.row for one in ours if one.read}
    listed = re.findall(r"^\| `\w+` \| .* \|$", (DOCS / "settings.md").read_text(), re.M)
    assert len(listed) == len(rows)
    assert rows - {*listed} == set(), "Copy these into docs/settings.md."
    of_projects = [one.row for one in ours if not one.read]
    assert re.findall(r"^\| `TRACESITE_\w+` \| .* \|$", (DOCS / "django_project.md").read_text(), re.M) == of_projects


def test_every_command_is_listed() -> None:
    ours = {name for name, app in get_commands().items() if app in OURS}
    listed = set(re.findall(r"`(\w+)[^`]*`", (DOCS / "commands.md").read_text()))
    assert ours - listed == set()


def test_every_route_of_the_api_is_listed() -> None:
    text = (DOCS / "api.md").read_text()
    listed = {re.sub(r"\{\w+\}", "{}", route) for route in re.findall(r"([a-z-]+/(?:[\w{}-]+/)*)", text)}
    routes = {
        re.sub(r"<[^>]+>", "{}", route.removeprefix("api/v1/"))
        for route in routes_below(get_resolver().url_patterns)
        if route.startswith("api/v1/") and foreign_api_of(f"/{route}") is None
    }
    unlisted = {route for route in routes if route and "restore" not in route} - listed
    assert unlisted == set(), "Add a row to docs/api.md."
    named = re.findall(r"`(?:GET|POST|PUT|PATCH|DELETE) ([a-z-]+/(?:[\w{}-]+/)*)`", text)
    assert {re.sub(r"\{\w+\}", "{}", route) for route in named} - routes == set(), "traces_app/urls.py lacks these."


def test_filters_of_lists_exist() -> None:
    known = {
        "sessions/": SessionFilterSet,
        "messages/": MessageFilterSet,
        "tool-calls/": CallFilterSet,
        "errors/": ErrorFilterSet,
        "chains/": ChainFilterSet,
        "tools/": ToolFilterSet,
        "usage/": UsageFilterSet,
        "scores/": ScoreFilterSet,
        "audit/": AuditFilterSet,
    }
    text = (DOCS / "api.md").read_text()
    table = text.partition("| list | filters")[2]
    of_all_lists = {"created_after", "created_before"}
    nothing: dict[str, set[str]] = {name: set() for name in known}
    rows = re.findall(r"^\| `([a-z-]+/)` \| (`\w+`,? ?.*) \|$", table, re.M)
    assert [name for name, _filters in rows] == list(known)
    listed = {name: set(re.findall(r"`(\w+)`", filters)) for name, filters in rows}
    assert {name: names - known[name].base_filters.keys() for name, names in listed.items()} == nothing
    assert {name: one.base_filters.keys() - listed[name] - of_all_lists for name, one in known.items()} == nothing, (
        "Add these filters to docs/api.md."
    )


def test_every_health_flag_is_listed() -> None:
    listed = (DOCS / "what_is_stored.md").read_text().split("\n## Flags\n")[1].split("\n## ")[0]
    assert [flag for flag in FLAGS if f"`{flag}`" not in listed] == []


def test_docs_list_every_format_in_detection_order() -> None:
    table = re.findall(r"^\| `(\w+)` \|", (DOCS / "formats.md").read_text().split("## Formats")[1], re.M)
    names = [format_.NAME for format_ in FORMATS]
    assert set(names) - set(table) == set(), "Add a row to docs/formats.md."
    assert table == names, "The rows of docs/formats.md are in the order of FORMATS."


def test_every_option_for_eko_is_listed() -> None:
    [options] = re.findall(r"^export interface TraceOptions \{\n(.+?)^\}", (EKO / "index.ts").read_text(), re.M | re.S)
    [table] = re.findall(r"^## Options\n(.+?)^## ", (EKO / "README.md").read_text(), re.M | re.S)
    assert re.findall(r"^\| `(\w+)`", table, re.M) == re.findall(r"^  (\w+)\?:", options, re.M)


def routes_below(patterns: list[URLPattern | URLResolver], prefix: str = "") -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        found += routes_below(pattern.url_patterns, route) if isinstance(pattern, URLResolver) else [route]
    return found


def test_each_sentence_has_a_line_of_its_own() -> None:
    pages = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", EKO / "README.md"]
    prose = [
        (path.name, line)
        for path in pages
        for line in re.sub(r"```.*?```", "", path.read_text(), flags=re.S).splitlines()
        if not line.startswith(("|", "    "))
    ]
    assert len(prose) > 2_000
    assert [one for one in prose if re.search(r"[a-z)`\]]\. [A-Z`\[]", one[1])] == [], "So that changes can be read."


def test_documents_hold_no_local_paths() -> None:
    texts = [
        path.read_text()
        for path in [
            *ROOT.glob("*.md"),
            *ROOT.glob("*.toml"),
            *ROOT.glob("sdk/*.md"),
            *ROOT.glob("sdk/*.toml"),
            ROOT / "Makefile",
        ]
    ]
    assert [text for text in texts if re.search(r"/home/\w|/root/|/tmp/", text)] == []


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("sdk/*.md"),
        *DOCS.rglob("*.md"),
        ROOT / "tests/faults/README.md",
        EKO / "README.md",
    ],
    ids=lambda page: page.name,
)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", page.read_text()):
        file, _hash, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            wrong.append(link)
    assert wrong == []


# --- docs/architecture.md, docs/changing.md and CONTRIBUTING.md ------------------------------------------------------

# `traces_app/ingest/store.py:store` names a module, package or file, and a function, class or method in it.
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|\w+\.py)(?::([\w.]+))?`")


def defined_in(path: Path) -> set[str]:
    """Return the functions, classes, methods and constants that a module defines."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def missing_names(text: str) -> list[str]:
    """Return the files, modules and functions that a page names but that do not exist."""
    missing = []
    for path, name in NAMED.findall(text):
        places = [ROOT / path, ROOT / "traces_app" / path, ROOT / "sdk" / "tracesite_sdk" / path]
        place = next((place for place in places if place.exists()), None)
        if place is None or (name and name not in defined_in(place)):
            missing.append(f"{path}:{name}" if name else path)
    return missing


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/changing.md", "docs/security.md", "CONTRIBUTING.md", "docs/glossary.md"]
)
def test_page_names_only_files_and_functions_that_exist(page: str) -> None:
    assert missing_names((ROOT / page).read_text()) == []


def test_every_limit_names_what_holds_it_and_a_test() -> None:
    limits = (DOCS / "security.md").read_text().partition("## Limits of every input")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in limits.splitlines() if re.match(r"\| (?!---|input)", line)]
    assert len(rows) > 20
    assert [row for row in rows if len(row) != 4 or not re.search(r"`(?:sdk/)?tests/[\w/]+\.py:\w+`$", row[3])] == []


def test_missing_name_in_page_is_found() -> None:
    text = "`traces_app/ingest/store.py:store` `traces_app/ingest/store.py:stored` `traces_app/gone.py` `normalize/redacted.py`"
    assert missing_names(text) == ["traces_app/ingest/store.py:stored", "traces_app/gone.py"]


def test_architecture_page_lists_every_package() -> None:
    text = (DOCS / "architecture.md").read_text()
    packages = {
        path.parent.name
        for app in (*OURS, "sdk/tracesite_sdk", "sdk/tracesite_sdk/recorder")
        for path in (ROOT / app).glob("*/__init__.py")
        if path.parent.name not in {"migrations", "management", "templatetags", "formats"}
    }
    assert [name for name in sorted(packages) if f"`{name}`" not in text] == []
