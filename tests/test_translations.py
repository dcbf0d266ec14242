"""Test that the Chinese catalogue holds every translatable text, and that the .mo matches the .po.

The catalogue is parsed in Python, so this needs no GNU gettext, and the .mo is in the repository.
"""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

from django.utils.translation.template import templatize

from sdk.tests.paths import ROOT

CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
APPS = ["access_app", "messages_app", "traces_app", "tracesite"]

HOW = """
    # add the text and its translation at the end of django.po by hand, or let Django add and sort all texts:
    .venv/bin/python manage.py makemessages -l zh_Hans --add-location file --no-obsolete --no-wrap
    # translate in locale/zh_Hans/LC_MESSAGES/django.po, and remove guesses marked "fuzzy"
    msgfmt -o locale/zh_Hans/LC_MESSAGES/django.mo locale/zh_Hans/LC_MESSAGES/django.po"""
"""The commands after a change of texts; docs/changing.md has the same."""

MARKS = {"_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy", "gettext_noop"}
_STRING = r"""u?("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
_CALL = re.compile(rf"\b(?:n?gettext|_)\(\s*{_STRING}(?:\s*,\s*{_STRING})?")
_PLACEHOLDER = re.compile(r"%\(\w+\)[.\d]*[a-z]|%[sd]|\{\w+\}")


def translations() -> dict[str, str]:
    """Parse the .po file into translations by text; a plural has the translations of its singular."""
    found: dict[str, str] = {}
    for block in re.split(r"\n\s*\n", CATALOGUE.read_text()):
        assert "fuzzy" not in block, f"a guess that nobody has looked at: {block}{HOW}"
        fields = {
            name: "".join(ast.literal_eval(line) for line in lines.split("\n") if line)
            for name, lines in re.findall(r'^(msg\w+(?:\[0\])?) ((?:".*"\n?)+)', block, re.MULTILINE)
        }
        translation = fields.get("msgstr", fields.get("msgstr[0]", ""))
        for name in ("msgid", "msgid_plural"):
            if fields.get(name):
                found[fields[name]] = translation
    return found


def texts_of_python(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in MARKS:
                yield from (
                    argument.value
                    for argument in node.args[: 2 if name.startswith("ngettext") else 1]
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                )


def texts_of_template(path: Path) -> Iterator[str]:
    for singular, plural in _CALL.findall(templatize(path.read_text(), str(path))):
        yield from (ast.literal_eval(text).replace("%%", "%") for text in (singular, plural) if text)


def marked_texts() -> set[str]:
    python = {text for app in APPS for path in (ROOT / app).rglob("*.py") for text in texts_of_python(path)}
    return python | {text for path in (ROOT / "templates").rglob("*.html") for text in texts_of_template(path)}


def test_every_text_is_translated() -> None:
    found = translations()
    missing = sorted(text for text in marked_texts() if not found.get(text))
    assert missing == [], f"Translate these texts:{HOW}"


_NO_TEXT = re.compile(
    r"{#.*?#}|{% comment %}.*?{% endcomment %}|{% blocktranslate.*?{% endblocktranslate %}|{% block (?:bodyclass|coltype) %}.*?"
    r"{% endblock %}|<(script|style|code|pre)\b.*?</\1>|&\w+;|{%.*?%}|{{.*?}}",
    re.DOTALL,
)
_LABEL = re.compile(r'\b(?:title|aria-label|placeholder|alt)="([^"]*)"')
_WORD = re.compile(r"(?<![?#])\b[A-Za-z]{2,}\b(?!=)")
NAMES = frozenset(["Tracesite", "API", "JSON", "JSONL", "Markdown", "UTC"])
"""Words that are the same in every language."""


def test_every_text_of_a_template_is_marked() -> None:
    unmarked = {}
    for path in (ROOT / "templates").rglob("*.html"):
        text = _NO_TEXT.sub(" ", path.read_text())
        shown = [*re.split("<[^>]*>", text), *_LABEL.findall(text)]
        if words := {word for part in shown for word in _WORD.findall(part)} - NAMES:
            unmarked[path.relative_to(ROOT)] = words
    assert unmarked == {}


def test_catalogue_has_no_obsolete_texts() -> None:
    texts = marked_texts()
    obsolete = sorted(text for text in translations() if text not in texts)
    assert obsolete == [], f"Remove these texts from the catalogue:{HOW}"


def test_translations_keep_placeholders() -> None:
    broken = [
        (text, translation)
        for text, translation in translations().items()
        if set(_PLACEHOLDER.findall(text)) != set(_PLACEHOLDER.findall(translation))
        or text.startswith(" ") != translation.startswith(" ")
    ]
    assert broken == []


def test_compiled_catalogue_matches_source() -> None:
    with CATALOGUE.with_suffix(".mo").open("rb") as file:
        entries: dict[str | tuple[str, int], str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    compiled = {key if isinstance(key, str) else key[0]: text for key, text in entries.items() if key != ""}
    source = translations()
    texts = len(re.findall("^msgid ", CATALOGUE.read_text(), re.MULTILINE)) - 1
    assert compiled == {text: source.get(text) for text in compiled}, f"Compile the catalogue:{HOW}"
    assert len(compiled) == texts, f"Compile the catalogue:{HOW}"
