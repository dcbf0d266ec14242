"""What the README lists is what the code has: settings, commands and routes are enumerated from the code."""

from __future__ import annotations

import re
from pathlib import Path

from django.core.management import get_commands
from django.urls import URLPattern, URLResolver, get_resolver

from traces_app.schema.health_flags import FLAGS
from traces_app.transcripts.formats.registry import FORMATS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
OURS = ("access_app", "messages_app", "traces_app", "tracesite")


def section(title: str) -> str:
    match = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", README, re.M | re.S)
    assert match is not None, f"README has no section {title}"
    return match[1]


def test_every_setting_has_a_row_and_every_row_a_setting() -> None:
    server = (path for path in (ROOT / "tracesite").rglob("*.py") if "recorder" not in path.relative_to(ROOT).parts)
    sources = [path.read_text() for path in server]
    read = {name for text in sources for name in re.findall(r"""["'](TRACESITE_[A-Z_]+|DATABASE_URL)["']""", text)}
    assert set(re.findall(r"^\| `(\w+)` \|", section("Settings"), re.M)) == read


def test_every_command_is_listed() -> None:
    ours = {name for name, app in get_commands().items() if app in OURS}
    listed = set(re.findall(r"`(\w+)[^`]*`", section("Commands")))
    assert ours - listed == set()


def test_every_route_of_the_api_is_listed() -> None:
    listed = {re.sub(r"\{\w+\}", "{}", route) for route in re.findall(r"([a-z-]+/(?:[\w{}-]+/)*)", section("The API"))}
    routes = {
        re.sub(r"<[^>]+>", "{}", route.removeprefix("api/v1/"))
        for route in routes_below(get_resolver().url_patterns)
        if route.startswith("api/v1/")
    }
    assert {route for route in routes if route and "restore" not in route} - listed == set()


def test_every_health_flag_is_listed() -> None:
    listed = (ROOT / "docs" / "normalisation.md").read_text().split("## 6. Flags")[1].split("##")[0]
    assert [flag for flag in FLAGS if f"`{flag}`" not in listed] == []


def test_every_format_is_listed_in_the_order_in_which_it_is_asked() -> None:
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "formats.md").read_text().split("## Formats")[1], re.M)
    assert table == [format_.NAME for format_ in FORMATS]


def routes_below(patterns: list[URLPattern | URLResolver], prefix: str = "") -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        found += routes_below(pattern.url_patterns, route) if isinstance(pattern, URLResolver) else [route]
    return found


def test_the_documents_name_no_machine() -> None:
    texts = [path.read_text() for path in [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]]
    assert [text for text in texts if re.search(r"/home/\w|/root/|/tmp/", text)] == []
