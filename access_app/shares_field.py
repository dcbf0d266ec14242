"""The field of a form for shares of calls by tool: a table with a tool and its share in each line, and two lines to add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .models import check_shares

EMPTY_LINES: Final = 2
"""Lines to add without JavaScript, which adds one whenever the last is used (shares.js)."""

Line = tuple[str, str]
"""A tool and its share, as they were typed."""


class SharesTable(forms.Widget):
    class Media:
        js = ("tracesite/shares.js",)

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Render the lines with the templates of the pages, which the renderer of forms of other projects does not know."""
        lines = _lines_of(value) if isinstance(value, Mapping) else list(value or ())
        _shares, errors = _read(lines)
        rows = [(tool, share, number in errors) for number, (tool, share) in enumerate(lines)]
        context = {"name": name, "id": (attrs or {}).get("id", name), "rows": [*rows, *[("", "", False)] * EMPTY_LINES]}
        return render_to_string("admin/access_app/shares.html", context)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[Line]:
        tools, shares = ([text.strip() for text in data.getlist(f"{name}_{part}")] for part in ("tool", "share"))
        return [line for line in zip(tools, shares, strict=False) if any(line)]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return f"{name}_tool" not in data


class SharesField(forms.Field):
    """A mapping of tools to shares from 0 to 1."""

    widget = SharesTable

    def to_python(self, value: Any) -> dict[str, float]:
        """Return the shares by tool. Raise ValidationError for each line that is none."""
        found, errors = _read(value or ())
        if errors:
            raise ValidationError([error for of_line in errors.values() for error in of_line])
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        return _lines_of(initial or {}) != list(data or ())


def _lines_of(shares: Mapping[str, float]) -> list[Line]:
    return [(tool, f"{share:.12g}") for tool, share in shares.items()]


def _read(lines: Sequence[Line]) -> tuple[dict[str, float], dict[int, list[str]]]:
    """Return the shares by tool, and the errors by number of the line."""
    found: dict[str, float] = {}
    errors: dict[int, list[str]] = {}
    for number, (tool, share) in enumerate(lines):
        faults = []
        if not tool:
            faults.append(_("A share of %(share)s needs the name of a tool.") % {"share": share})
        elif tool in found:
            faults.append(_("“%(tool)s” is there twice.") % {"tool": tool})
        try:
            found[tool] = float(share)
            check_shares({tool or "-": found[tool]})
        except (ValueError, ValidationError):
            faults.append(_("“%(tool)s” needs a share from 0 to 1, such as 0.1.") % {"tool": tool})
        if faults:
            errors[number] = faults
    return found, errors
