"""Masking when a viewer reads: the one place between the database and everything that shows what it holds.

While a request of a viewer runs, the cursors of its connection mask the rows that they return, so that pages, the API, exports
and the search get masked values whichever way they read them. See docs/masking.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
from django.apps import apps
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from .db.base import masking_of_reader
from .masking import compiled
from .models import MaskingRule, Role
from .redaction.engine import redact
from .redaction.rules import MARKER, Rules
from .roles import Access, access

MASKED_COLUMNS: Final = frozenset(
    # Columns with what agents and people wrote.
    """
    args attachments comment content content_parts current_phase data description error fork image_info knowledge_filename
    knowledge_source knowledge_title label messages metadata notes object_repr output parameters raw reasoning reasoning_content
    reflection system tags thought title tools usage value workflow
    """.split()  # noqa: SIM905, a list of strings would be harder to read
)
"""Names of columns that are masked. Others of the models are not: ids, times, names and states. What is no column of a model is
an expression, and masked."""


def is_masked() -> bool:
    """Return whether the rows that are read at the moment are masked."""
    return masking_of_reader.get() is not None


def hides(text: str) -> bool:
    """Return whether the reader of this moment gets this text masked."""
    mask = masking_of_reader.get()
    return mask is not None and redact(text, mask.rules)[0] != text


@contextmanager
def masked(rules: Rules | None) -> Iterator[None]:
    """Mask the rows that are read within the block; do not for None."""
    token = masking_of_reader.set(None if rules is None else RowMask(rules))
    try:
        yield
    finally:
        masking_of_reader.reset(token)


def rules_of_reader(reader: Access) -> Rules | None:
    """Return the masking rules of the projects in which a login is a viewer only; None without any."""
    if reader.roles is None:
        return None
    projects = [project_id for project_id, role in reader.roles.items() if role == Role.VIEWER]
    if not projects:
        return None
    rows = MaskingRule.objects.filter(project__in=projects, enabled=True).values_list("name", "kind", "value")
    return compiled(tuple(rows), strict=False) if rows else None


@dataclass(frozen=True)
class RowMask:
    """A row factory for psycopg that masks values."""

    rules: Rules

    def __call__(self, cursor: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        columns = [
            (place, column.name, self.rules) if column.name in MASKED_COLUMNS else (place, "", self.rules.anywhere)
            for place, column in enumerate(cursor.description or ())
            if column.name in MASKED_COLUMNS or column.name not in _columns_of_models()
        ]

        def make(values: Sequence[Any]) -> tuple[Any, ...]:
            row = list(values)
            for place, path, rules in columns:
                row[place] = _masked(row[place], path, rules)
            return tuple(row)

        return make


def _masked(value: Any, path: str, rules: Rules) -> Any:
    """Return a value of the column `path`, or of an expression, for which it is empty."""
    if isinstance(value, bytes | memoryview) and path:
        try:
            return _masked_json(bytes(value), path, rules)
        except (msgspec.DecodeError, RecursionError):
            return msgspec.json.encode(MARKER)
    if isinstance(value, str) and value[:1] in ("{", "["):
        # JSON comes as text, whatever the type of its column. Numbers are masked, too.
        try:
            return _masked_json(value.encode(), path, rules).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass  # It is a text like others.
    return redact(value, rules, path)[0] if isinstance(value, str | list | dict) else value


def _masked_json(value: bytes, path: str, rules: Rules) -> bytes:
    clean, receipts = redact(msgspec.json.decode(value), rules, path)
    return msgspec.json.encode(clean) if receipts else value


@cache
def _columns_of_models() -> frozenset[str]:
    return frozenset(str(field.column) for model in apps.get_models() for field in model._meta.concrete_fields)


class MaskedReadingMiddleware:
    """Mask what a request of a viewer reads."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        rules = rules_of_reader(access(request)) if request.user.is_authenticated else None
        if rules is None:
            return self.get_response(request)
        with masked(rules):
            response = self.get_response(request)
        if isinstance(response, StreamingHttpResponse):
            # Exports read their rows while they are sent.
            response.streaming_content = _streamed(response.streaming_content, rules)
        return response


def _streamed(parts: Any, rules: Rules) -> Iterator[Any]:
    rest = iter(parts)
    while True:
        with masked(rules):
            part = next(rest, None)
        if part is None:
            return
        yield part
