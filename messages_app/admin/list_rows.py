"""The head and the rows of an admin list, as HTML.

Django's own tag looks up each cell by the names of fields, and its link by the resolver: half of the time of a page. Here the cells are
the methods of the admin, asked once a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import display_for_field, label_for_field
from django.db.models import Field
from django.http import HttpRequest
from django.utils.html import conditional_escape, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from .filters import CURSOR, ORDER

if TYPE_CHECKING:
    from .keyset import KeysetAdmin, KeysetChangeList

CHECKBOX = "action_checkbox"
_EMPTY = frozenset(["", "—"])
"""What cells without a value say; the dash is that of an unknown cost."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a list."""

    name: str
    label: str
    cell: Callable[[Any], Any]
    sorted_url: str = ""
    """The list in the order of this column; "" if it has none."""
    is_sorted: bool = False

    @property
    def css_class(self) -> str:
        return "action-checkbox-column" if self.name == CHECKBOX else f"column-{self.name}"


def list_columns(found: KeysetChangeList) -> list[Column]:
    """Return the columns of a list, in order."""
    admin_ = found.keyset_admin
    sorts = {sort.column: name for name, sort in admin_.sorts.items()} if admin_.can_sort(found.request) else {}
    columns = []
    for one in found.list_display:
        name = one if isinstance(one, str) else one.__name__
        label = str(label_for_field(one, found.model, admin_))
        order = sorts.get(name)
        columns.append(
            Column(
                name=name,
                label=capfirst(label),
                cell=one if callable(one) else getattr(admin_, one, None) or _field(admin_, one),
                sorted_url="" if order is None else found.get_query_string({ORDER: order}, [CURSOR]),
                is_sorted=order is not None and found.params.get(ORDER) == order,
            )
        )
    return columns


def without_empty(admin_: KeysetAdmin, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    """Return the columns that stay on the page of `rows`: see `KeysetAdmin.columns_with_text`."""
    optional = {*admin_.columns_with_text, *admin_.columns_that_differ}
    if not optional or admin_.columns.are_chosen(admin_, request):
        return list(columns)
    return [one for one in columns if one not in optional or _says_something(admin_, one, rows)]


def _says_something(admin_: KeysetAdmin, column: str, rows: Sequence[Any]) -> bool:
    cell: Callable[[Any], Any] = getattr(admin_, column)
    texts = (strip_tags(str(cell(row) or "")) for row in rows)  # ends at the first row that decides
    if column in admin_.columns_that_differ and len(rows) > 1:
        first = next(texts)
        return any(text != first for text in texts)
    return any(text not in _EMPTY for text in texts)


def _field(admin_: KeysetAdmin, name: str) -> Callable[[Any], Any]:
    """Return a function that shows a field of a row, for a column without a method of its own."""
    field = admin_.opts.get_field(name)
    assert isinstance(field, Field), f"{name} is a column"

    def shown(row: Any) -> Any:
        value = getattr(row, name)
        return value if field.is_relation else display_for_field(value, field, admin_.get_empty_value_display())

    return shown


def list_rows(found: KeysetChangeList) -> Iterator[SafeString]:
    """Yield the cells of each row. The column of `list_display_links` is the head of its row and leads to its page."""
    columns = list_columns(found)
    links = found.list_display_links or ()
    kept = f"?{found.preserved_filters}" if found.preserved_filters else ""
    for row in found.result_list:
        cells = []
        for column in columns:
            text = column.cell(row)
            value = "" if text is None else conditional_escape(text)
            if column.name in links:
                url = conditional_escape(f"{found.url_for_result(row)}{kept}")
                cells.append(f'<th class="field-{column.name}" scope="row"><a href="{url}">{value}</a></th>')
            else:
                kind = "action-checkbox" if column.name == CHECKBOX else f"field-{column.name}"
                cells.append(f'<td class="{kind}">{value}</td>')
        # Each part is escaped above.
        yield mark_safe("".join(cells))  # noqa: S308
