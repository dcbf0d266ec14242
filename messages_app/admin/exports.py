"""Export what a list of the admin is filtered to, as CSV for spreadsheets and as JSON lines for programs.

The rows are written a batch at a time while they are read, so that an export of any size takes the memory of one batch.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import DecimalField, F, Func, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.admin_roles import Page
from access_app.visibility import visible_to
from messages_app.http.responses import streamed
from messages_app.sql.beginnings import Beginning

from .walks import TookTooLong, all_keys

if TYPE_CHECKING:
    from .keyset import KeysetAdmin

EXPORT_ROWS = 100_000
"""Maximum number of rows of an export: the newest ones."""
TEXT_CHARACTERS = 32_000
"""Characters of each text in an export, because a cell of a spreadsheet holds 32,767."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With these a spreadsheet begins a formula, or skips them and begins it behind them; the last four are full-width."""

_BYTE_ORDER_MARK = "\ufeff"
_TO_JSON = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class Export:
    """The export of a list. A list without columns of an export has none."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """The expression of each column, by its name in the file."""

    def urls(self, model_admin: KeysetAdmin) -> list[URLPattern]:
        return [Page("export/<slug:form>/", self.send, "export").url(model_admin)]

    def context(self, model_admin: KeysetAdmin, request: HttpRequest) -> dict[str, Any]:
        return {"export_forms": list(FORMS) if self.columns else [], "export_rows_shown": f"{EXPORT_ROWS:,}"}

    def send(self, model_admin: KeysetAdmin, request: HttpRequest, form: str) -> HttpResponseBase:
        """Stream the rows that the list is filtered to, newest first, at most EXPORT_ROWS."""
        if not self.columns or form not in FORMS:
            raise Http404
        pages = all_keys(model_admin, request, EXPORT_ROWS)
        try:
            # Read before the answer begins, so that a filter that is invalid or too slow is explained on the list.
            first = next(pages, [])
            name, rows = str(model_admin.opts.model_name), model_admin.get_queryset(request)
            readable = model_admin.readable(request)
            if readable is None:
                parts = [rows]
            else:
                parts = [visible_to(db.rows_of(rows), scope, model_admin.project_path) for db, scope in readable]
            return export(name, form, parts, self.columns, chain([first], pages))
        except IncorrectLookupParameters:
            return HttpResponseRedirect(model_admin.list_url())
        except TookTooLong:
            text = _("The export took too long and was stopped. Narrow the list.")
            model_admin.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(model_admin.list_url(request.GET.urlencode()))


def text(field: str) -> Beginning:
    """Return the expression for the beginning of a text or JSON column; JSON as text."""
    return Beginning(Cast(field, TextField()), TEXT_CHARACTERS)


def amount(field: str) -> Func:
    """Return the expression for a decimal column without zeros at its end."""
    return Func(F(field), function="trim_scale", output_field=DecimalField())


def export(
    name: str,
    form: str,
    rows: Sequence[QuerySet[Any]],
    columns: Mapping[str, Any],
    batches: Iterable[Sequence[Any]],
) -> HttpResponseBase:
    """Stream the rows of `batches`, lists of their primary keys, newest first, as an attachment; `form` is a key of FORMS.

    `rows` are those that the reader may see, in each database that has some. One that was deleted since its key was read is
    left out.
    """
    content_type, write = FORMS[form]
    at = timezone.now().strftime("%Y%m%dT%H%M%SZ")
    headers = {"Content-Disposition": f'attachment; filename="{name}-{at}.{form}"'}
    read = (_values(rows, columns, keys) for keys in batches)
    return streamed(write(list(columns), read), content_type=content_type, headers=headers)


def _values(rows: Sequence[QuerySet[Any]], columns: Mapping[str, Any], keys: Sequence[Any]) -> list[tuple[Any, ...]]:
    found: dict[Any, tuple[Any, ...]] = {}
    for part in rows:
        named = part.filter(pk__in=keys).order_by().values_list("pk", *columns.values())
        found.update((key, tuple(values)) for key, *values in named)
    return [found[key] for key in sorted(found, reverse=True)]


def _as_csv(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> Iterator[bytes]:
    # Without the mark Excel would read the file in the code page of its system.
    yield (_BYTE_ORDER_MARK + _csv_lines([names])).encode()
    for batch in batches:
        yield _csv_lines([[_cell(value) for value in row] for row in batch]).encode()


def _csv_lines(rows: Iterable[Sequence[str]]) -> str:
    lines = io.StringIO()
    csv.writer(lines).writerows(rows)
    return lines.getvalue()


def _cell(value: Any) -> str:
    """Return the text of a cell: times in ISO 8601, lists as JSON. A text cannot begin a formula."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    plain = msgspec.to_builtins(value)
    if plain is None:
        return ""
    if isinstance(plain, bool | list | dict):
        return _TO_JSON.encode(plain).decode()
    return f"'{plain}" if isinstance(plain, str) and plain.startswith(FORMULA_STARTS) else str(plain)


def _as_json_lines(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(_TO_JSON.encode(dict(zip(names, row, strict=True))) + b"\n" for row in batch)


FORMS: Mapping[str, tuple[str, Callable[[Sequence[str], Iterable[list[tuple[Any, ...]]]], Iterator[bytes]]]] = {
    "csv": ("text/csv; charset=utf-8", _as_csv),
    "jsonl": ("application/x-ndjson", _as_json_lines),
}
"""Content type and writer of each format, by the extension of its files."""
