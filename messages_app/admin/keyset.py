"""Admin lists of big tables: newest first by primary key, no COUNT, page 10,000 as fast as page 1.

A page is found by the id of the row beside it (row_pages.py). The number of rows is not shown. A query
that reads for too long, because its filters match few rows, is stopped after a few seconds with a notice on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import F, Field, Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.admin_roles import RoleAdmin, url_name
from access_app.db import Database, project_aliases
from access_app.db.conflicts import was_stopped
from access_app.db.reading import is_of_traces
from access_app.errors import InvalidInput
from access_app.readable import Readable, ReadableRows
from access_app.readable_pages import leave_out, note_databases, readable
from access_app.request_database import database, use_alias
from access_app.visibility import visible_to
from messages_app.safe_text import one_line
from messages_app.sql.batch import time_limit
from messages_app.sql.pagination import Cursor, IdRange, PageRequest, QuerySetKeys

from .api_list import ApiList
from .columns import COLUMNS, Columns
from .downloads import Downloads
from .exports import Export
from .filters import (
    ANY_TIME,
    CURSOR,
    ORDER,
    BarFilter,
    Chip,
    CreatedFilter,
    InvalidFilter,
    OrderFilter,
    ProjectFilter,
    SessionNameFilter,
    Sort,
    ValueLink,
    parameters_of,
    readable_projects,
    remember_period,
)
from .list_rows import list_columns, list_rows, without_empty
from .row_pages import (
    SORTED_ROWS,
    RowPage,
    TimeCursor,
    nested_loops,
    page_number,
    read_rows,
    read_rows_by_time,
    read_sorted,
)
from .saved_views import SavedViews
from .selection import BulkActions
from .trash import TEMPLATE, TEMPLATE_OF_SELECTED, Trash, name_deletions, url_of
from .typed_filters import typed_filters
from .walks import TookTooLong, end_of_search, is_walk, page_size

VALUE_CHARACTERS = 80
_LAST_DELETED = Sort(column="", value="deleted_at", title=gettext_lazy("Last deleted first"), is_indexed=True)
MOST_WORDS = 6
"""The most words of a search without results for which each is offered by itself."""


_OPERATORS = frozenset(["and", "or"])
"""Of other searches; ours looks for them as for any word."""


def single_words(query: str) -> list[str]:
    """Return the words of a search that needs all of several, to be searched by themselves; none if it has more than words."""
    words = list(dict.fromkeys(query.split()))
    if not all(word.isalnum() and len(word) > 1 for word in words) or not 1 < len(words) <= MOST_WORDS:
        return []
    return [word for word in words if word.lower() not in _OPERATORS]


@dataclass(frozen=True, kw_only=True)
class NamedList:
    """The rows with a value of a filter, if their list has a title of its own, such as failed calls.

    Readers keep columns and views of it beside those of the list of all rows.
    """

    parameter: str
    value: str
    title: Any
    usual: Sequence[str]
    """The columns of readers who chose none."""
    columns: Sequence[str] = ()
    """The columns that a reader can choose, if they are others."""
    can_add: bool = True


class KeysetChangeList(ChangeList):
    """Django's change list without its counting, sorting and page numbers."""

    list_columns, list_rows = list_columns, list_rows
    was_stopped = False
    """Whether the query took longer than `KeysetAdmin.list_time_limit_ms`: the list is empty, with a notice."""
    is_of_one_database = True
    newer_query_string: str | None = None
    older_query_string: str | None = None
    older_cursor: str | None = None

    @property
    def keyset_admin(self) -> KeysetAdmin:
        assert isinstance(self.model_admin, KeysetAdmin), "only KeysetAdmin makes this change list"
        return self.model_admin

    @property
    def facets_url(self) -> str:
        """The address of the facets of the list; "" if it has none."""
        admin_ = self.keyset_admin
        has_some = admin_.has_page("facets") and not admin_.in_trash(self.request)
        return reverse(f"admin:{url_name(admin_, 'facets')}") + self.get_query_string() if has_some else ""

    @property
    def is_newest(self) -> bool:
        """Whether its first rows are the newest ones of runs, sessions or calls, above which new ones come."""
        admin_ = self.keyset_admin
        is_by_id = not self.query and admin_.sort(self.request) is None
        return is_by_id and not self.newer_query_string and admin_.has_peek(self.request)

    @property
    def offers_all(self) -> bool:
        """Return whether actions can apply to all matching rows: only if there are more than those of the page."""
        is_longer = bool(self.newer_query_string or self.older_query_string)
        return self.keyset_admin.bulk.for_all and is_longer and self.is_of_one_database

    @property
    def contradictions(self) -> list[str]:
        """Why no row can match, whatever the rows are."""
        return [spec.contradiction for spec in self.bar_filters if spec.contradiction]

    @property
    def bar_filters(self) -> list[BarFilter]:
        """The controls of the filter bar. Lists without a choice of order have none for it."""
        return [spec for spec in self.filter_specs if isinstance(spec, BarFilter)]

    @property
    def linked_filters(self) -> list[tuple[str, str, list[ValueLink]]]:
        """The filters with values that one click chooses: title, parameter and the links. The trash has none."""
        if self.keyset_admin.in_trash(self.request):
            return []
        linked = [(spec, spec.links(self)) for spec in self.bar_filters]
        return [(str(spec.title), parameters_of(type(spec))[0], links) for spec, links in linked if links]

    @property
    def chips(self) -> list[Chip]:
        """The search and the active filters, each with the list without it; but for those that the title of the list says."""
        shown = [spec for spec in self.bar_filters if not self._said_by_title.intersection(parameters_of(type(spec)))]
        found = [chip for spec in shown for chip in spec.chips(self)]
        if self.query.strip():
            without = self.get_query_string({SEARCH_VAR: None})
            found.insert(0, Chip(label=_("search"), text=one_line(self.query, VALUE_CHARACTERS), without=without))
        return found

    @property
    def single_words(self) -> list[tuple[str, str]]:
        """The words of a search that needs all of several, each with the list that needs it only."""
        words = single_words(self.query) if self._api_searches else []
        return [(word, self.get_query_string({SEARCH_VAR: word}, [CURSOR])) for word in words]

    @property
    def query_string_without_filters(self) -> str:
        """The list without its search and filters, of the same title, in the same order and with the same columns."""
        kept = {name: self.params[name] for name in (*self._said_by_title, COLUMNS, ORDER) if name in self.params}
        return f"?{urlencode(kept)}"

    @property
    def _said_by_title(self) -> frozenset[str]:
        return self.keyset_admin.said_by_title(self.params)

    @property
    def _api_searches(self) -> bool:
        api = self.keyset_admin.api
        return api is not None and api.searches

    @property
    def not_in_api(self) -> list[str]:
        """The names of what the list is narrowed or ordered by and the REST API has no parameter for."""
        names = [str(spec.title) for spec in self.bar_filters if spec.given and not spec.in_api]
        searched = self.query.strip() and not self._api_searches
        return [_("search"), *names] if searched else names

    def api_parameters(self) -> dict[str, str]:
        """Return the parameters of the REST API that find the same rows, but for `not_in_api`."""
        found: dict[str, str] = {}
        for spec in self.bar_filters:
            if spec.in_api:
                found |= spec.api_parameters()
        if self.query.strip() and self._api_searches:
            found["q"] = self.query
        return found

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.request = request
        try:
            super().__init__(request, *args, **kwargs)
        except IncorrectLookupParameters as error:
            # The admin redirects to the list without filters, which shows this message; `changelist_view` keeps the others.
            messages.warning(request, _invalid_filter(error))
            request.invalid_filter = error  # type: ignore[attr-defined]  # read only there
            raise

    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str | None] | None = None) -> QuerySet[Any]:
        # The cursor is not a filter, and a changed filter starts at the first page.
        self.params.pop(CURSOR, None)
        self.filter_params.pop(CURSOR, None)
        return super().get_queryset(request, exclude_parameters)

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        # The columns are not a filter either, but stay in the links of the page.
        found: dict[str, Any] = super().get_filters_params(params)
        found.pop(COLUMNS, None)
        return found

    def get_filters(self, request: HttpRequest) -> Any:
        try:
            return super().get_filters(request)
        except DisallowedModelAdminLookup as error:
            # A mistyped or outdated URL is handled like an unknown value of a filter.
            for name in self.get_filters_params():
                value = str(request.GET[name])
                if not self.model_admin.lookup_allowed(name, value, request):
                    reason = _("There is no such filter.") if "\x00" not in value else ""
                    raise InvalidFilter(name, value, reason) from error
            raise IncorrectLookupParameters from error

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return ["-pk"]

    def get_ordering_field_columns(self) -> dict[int, Any]:
        return {}

    def get_results(self, request: HttpRequest) -> None:
        db = database(request)
        admin_ = self.keyset_admin
        try:
            # A walk is in the order of ids: a row that becomes active meanwhile would escape an order by activity.
            sort = None if is_walk(request) else admin_.sort(request)
            read_page_of = self._page_reader(db, sort, page_size(admin_, request), request.GET.get(CURSOR))
        except InvalidInput as error:
            raise IncorrectLookupParameters from error
        try:
            with ExitStack() as stack:
                page = read_page_of(self._rows(request, stack))
        except OperationalError as error:
            if not was_stopped(error):
                raise
            page = RowPage(rows=[])
            self.was_stopped = True
        self.result_list = page.rows
        self.result_count = self.full_result_count = len(page.rows)
        self.show_full_result_count = False
        self.show_admin_actions = bool(page.rows)
        self.can_show_all = self.multi_page = False
        self.older_cursor = page.next
        shown = admin_.shown_columns(request, self.list_display, page.rows)
        self.list_display = without_empty(admin_, request, shown, page.rows)
        if page.previous:
            self.newer_query_string = self.get_query_string({CURSOR: page.previous})
        if page.next:
            self.older_query_string = self.get_query_string({CURSOR: page.next})

    def _rows(self, request: HttpRequest, stack: ExitStack) -> ReadableRows[QuerySetKeys]:
        """Return the rows of the list in the database of the request, or in each one with projects of the reader, limited in time.

        A page says which databases it could not read; a walk fails.
        """
        db = database(request)
        admin_ = self.keyset_admin
        readable_rows = admin_.readable(request)
        if readable_rows is None:
            stack.enter_context(time_limit(db, admin_.list_time_limit_ms))
            return ReadableRows(parts={db: QuerySetKeys(self.queryset)})
        parts: dict[Database, QuerySetKeys] = {}
        for other, scope in readable_rows:
            try:
                rows = self.queryset if other == db else self._filtered(request, other)
                stack.enter_context(time_limit(other, admin_.list_time_limit_ms))
            except OperationalError as error:
                if is_walk(request):
                    raise
                leave_out(request, other, error)
                continue
            parts[other] = QuerySetKeys(visible_to(rows, scope, admin_.project_path))
        if (reached := end_of_search(request)) is not None:
            # Beyond the place where the first of them stopped the others would look complete. The next page begins there.
            parts = {other: part.within(IdRange(lower=reached)) for other, part in parts.items()}
        self.is_of_one_database = False
        note_databases(request, parts)
        return ReadableRows(parts=parts)

    def _filtered(self, request: HttpRequest, db: Database) -> QuerySet[Any]:
        """Return the rows of a database. Filters and searches look up names there."""
        rows = db.rows_of(self.root_queryset)
        for spec in self.filter_specs:
            narrowed = spec.queryset(request, rows)
            rows = rows if narrowed is None else narrowed
        found, _may_repeat = self.model_admin.get_search_results(request, rows, self.query)
        return found

    def _read_keys(self, db: Database, keys: Sequence[Any]) -> Mapping[Any, Any]:
        with nested_loops(db):
            return db.rows_of(self.root_queryset).order_by().in_bulk(keys)

    def _page_reader(
        self, db: Database, sort: Sort | None, size: int, cursor: str | None
    ) -> Callable[[ReadableRows[QuerySetKeys]], RowPage]:
        """Return a function that reads the requested page. Raise InvalidInput for a cursor of another order."""
        if sort is not None and sort.is_indexed:
            assert isinstance(sort.value, str), "an index is on a column"
            column, place = sort.value, TimeCursor.parse(cursor) if cursor else None
            return lambda rows: read_rows_by_time(rows, column, size, place, self._read_keys)
        if sort is not None:
            value = F(sort.value) if isinstance(sort.value, str) else sort.value
            number = page_number(cursor)
            return lambda rows: read_sorted(rows, value, size, number, self._read_keys)
        wanted = PageRequest(limit=size, cursor=Cursor.parse(cursor) if cursor else None)
        return lambda rows: read_rows(rows, wanted, self._read_keys)


class KeysetAdmin(RoleAdmin):
    """A read-only ModelAdmin whose list is a KeysetChangeList, with the parts that it has.

    Superusers see all projects; without roles, other users see none.
    """

    list_time_limit_ms = 10_000
    list_per_page = 50
    show_full_result_count = False
    empty_value_display = ""
    show_facets = admin.ShowFacets.NEVER  # facets need COUNT
    sortable_by = ()
    # Enables the search box; `get_search_results` implements the search.
    search_fields = ("pk",)
    change_list_template = "admin/keyset_change_list.html"
    delete_confirmation_template = TEMPLATE
    delete_selected_confirmation_template = TEMPLATE_OF_SELECTED

    downloads: ClassVar[Downloads] = Downloads()
    exports: ClassVar[Export] = Export()
    columns: ClassVar[Columns] = Columns()
    saved_views: ClassVar[SavedViews] = SavedViews()
    bulk: ClassVar[BulkActions] = BulkActions()
    api: ClassVar[ApiList | None] = None
    trash: ClassVar[Trash | None] = None
    columns_with_text: ClassVar[Collection[str]] = ()
    """The columns that a page leaves out if they are empty in all of its rows, unless the reader chose the columns."""
    columns_that_differ: ClassVar[Collection[str]] = ()
    """Those that it also leaves out if they are the same in all of several rows."""
    named_lists: ClassVar[Sequence[NamedList]] = ()
    sorts: ClassVar[Mapping[str, Sort]] = {}
    """The orders that the reader can choose, by the values of their parameter; a list with some has the OrderFilter."""
    rows_name: ClassVar[str | Promise] = ""
    """What its rows are called, if the name of the list is no plural."""
    searched_fields: ClassVar[Collection[str]] = ()
    """The names before a colon that belong to the search; others are those of filters."""
    search_example: ClassVar[str] = ""
    """Filters that can be typed into the search."""

    def get_urls(self) -> list[URLPattern]:
        of_trash = [] if self.trash is None else self.trash.urls(self)
        of_list = [
            url for part in (self.downloads, self.exports, self.columns, self.saved_views) for url in part.urls(self)
        ]
        return [*of_trash, *of_list, *super().get_urls()]

    # --- The list -------------------------------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        # The facets of a list count its rows instead.
        found: type[ChangeList] = getattr(request, "changelist", KeysetChangeList)
        return found

    def keyset_list(self, request: HttpRequest) -> KeysetChangeList:
        """Return the list of a request."""
        found = self.get_changelist_instance(request)
        assert isinstance(found, KeysetChangeList), "see get_changelist"
        return found

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        remember_period(request)
        name_of_period = CreatedFilter.parameter_names[0]
        is_any = request.GET.get(name_of_period) == ANY_TIME
        if request.method == "GET" and (is_any or not all(request.GET.values())):
            # A form sends its empty fields, too; without them the address says what the list shows.
            given = QueryDict(mutable=True)
            for name, values in request.GET.lists():
                given.setlist(name, [value for value in values if value and not (is_any and name == name_of_period)])
            return HttpResponseRedirect(f"{request.path}?{given.urlencode()}")
        if request.method == "GET" and (moved := self.with_typed_filters(request)):
            return HttpResponseRedirect(f"{request.path}?{moved.urlencode()}")
        if refusal := self.bulk.refusal(self, request):
            return refusal
        try:
            response = super().changelist_view(request, {**self.list_context(request), **(extra_context or {})})
        except TookTooLong:
            text = _("Finding all rows took too long. Nothing was changed. Narrow the list.")
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        invalid: IncorrectLookupParameters | None = getattr(request, "invalid_filter", None)
        if invalid is not None:
            return HttpResponseRedirect(
                f"{request.path}?{kept}" if (kept := without_invalid(request.GET, invalid)) else request.path
            )
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            found = response.context_data.get("cl")
            # The trash of the API has messages that were deleted with their session, too, and another order.
            if self.api is not None and isinstance(found, KeysetChangeList) and not self.in_trash(request):
                response.context_data |= self.api.context(request, found)
        return response

    def with_typed_filters(self, request: HttpRequest) -> QueryDict | None:
        """Return the parameters of the list with those filters that its search names; None if it names none."""
        rest, typed = typed_filters(
            request.GET.get(SEARCH_VAR, ""), self.get_list_filter(request), self.searched_fields
        )
        if not typed:
            return None
        moved = request.GET.copy()
        for name, value in {SEARCH_VAR: rest, **typed}.items():
            moved[name] = value
        if not rest:
            del moved[SEARCH_VAR]
        return moved

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the page of the list shows beside its rows."""
        in_trash, named = self.in_trash(request), self.named_list(request.GET)
        rows = capfirst(str(self.opts.verbose_name_plural))
        context: dict[str, Any] = {
            "title": named.title if named else _("Trash: %(rows)s") % {"rows": rows} if in_trash else rows,
            "rows_name": str(named.title).lower() if named else self.rows_name or self.opts.verbose_name_plural,
            "list_order": self._order_in_words(request),
            "address_query": request.GET.urlencode(),
            "has_peek": self.has_peek(request),
            **self.exports.context(self, request),
            **self.columns.context(self, request),
            **self.saved_views.context(self, request),
        }
        if named is not None and not named.can_add:
            context["has_add_permission"] = False
        return context if self.trash is None else context | self.trash.context(self, request)

    def _order_in_words(self, request: HttpRequest) -> str:
        sort = self.sort(request)
        if sort is None or sort.is_indexed:
            return str(sort.title if sort else _("Newest first"))
        return _("%(order)s, of the newest %(number)s") % {"order": sort.title, "number": f"{SORTED_ROWS:,}"}

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        if self.trash is not None and self.trash.is_shown(self, request):
            return self.trash.list_display(self, request)
        if not self.columns.known:
            return list(super().get_list_display(request))
        return list(self.columns.shown(self, request))

    def get_list_filter(self, request: HttpRequest) -> Any:
        filters = super().get_list_filter(request)
        # The trash is ordered by the time of deletion.
        return [one for one in filters if one is not OrderFilter] if self.in_trash(request) else filters

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        return actions if self.trash is None else self.trash.offered(self, request, actions)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Django would accept any column as a filter, indexed or not.
        assert request is not None, "Django 5.2 gives the request"
        filters: Iterable[Any] = self.get_list_filter(request)
        known = any(lookup in parameters_of(list_filter) for list_filter in filters)
        return known and "\x00" not in value  # PostgreSQL rejects U+0000

    def sort(self, request: HttpRequest) -> Sort | None:
        """Return the order of the list; None for that of its ids."""
        if self.in_trash(request):
            return _LAST_DELETED
        return self.sorts.get(request.GET.get(ORDER, "")) if self.can_sort(request) else None

    def can_sort(self, request: HttpRequest) -> bool:
        """Return whether the reader can choose the order. A search finds the newest first, and the trash has its own."""
        return not (self.in_trash(request) or request.GET.get(SEARCH_VAR, "").strip())

    def usual_columns(self, request: HttpRequest) -> Sequence[str]:
        """Return the columns of readers who chose none, but for the project and the session if all rows are of one."""
        named = self.named_list(request.GET)
        usual = [str(one) for one in self.list_display] if named is None else named.usual
        of_one = set()
        if ProjectFilter.parameter_name in request.GET or len(readable_projects(request)) < 2:
            of_one.add("project")
        # Beside the session, the list of runs tells them apart.
        if SessionNameFilter.parameter_name in request.GET and "question" not in usual:
            of_one.add("in_session")
        return [name for name in usual if name not in of_one]

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Return the columns that the page shows for `rows`, for a column that few pages need."""
        return list(columns)

    def listed_columns(self, request: HttpRequest) -> list[str]:
        """Return the columns of the table that the list shows by their own names, for `only`: Django would read each of the
        others again for each row."""
        stored = {field.name for field in self.opts.concrete_fields}
        return [name for name in self.get_list_display(request) if name in stored]

    def in_trash(self, request: HttpRequest) -> bool:
        """Return whether the request is for the list of the trash."""
        return self.trash is not None and self.trash.is_shown(self, request)

    def has_page(self, name: str) -> bool:
        """Return whether the admin has such a page of its own."""
        return any(page.name == name for page in self.pages)

    def has_peek(self, request: HttpRequest) -> bool:
        """Return whether a click on a row shows it beside the list."""
        return self.has_page("peek") and not self.in_trash(request)

    def named_list(self, parameters: Mapping[str, str]) -> NamedList | None:
        """Return the list with these parameters, if it has a title of its own."""
        return next((one for one in self.named_lists if parameters.get(one.parameter) == one.value), None)

    def said_by_title(self, parameters: Mapping[str, str]) -> frozenset[str]:
        """Return the parameters of a list that its title says, so that it has no chips for them."""
        named = self.named_list(parameters)
        return frozenset() if named is None else frozenset([named.parameter])

    def list_name(self, parameters: Mapping[str, str]) -> str:
        """Return the name under which readers keep columns and views of the list with these parameters.

        It is the label of the model, with what the title of the list says: runs are not all messages.
        """
        said = [(name, parameters[name]) for name in sorted(self.said_by_title(parameters))]
        return f"{self.opts.label_lower}?{urlencode(said)}" if said else self.opts.label_lower

    def list_url(self, query: str = "") -> str:
        """Return the URL of the list, with a query string."""
        url = reverse(f"admin:{url_name(self, 'changelist')}")
        return f"{url}?{query}" if query else url

    # --- Databases ------------------------------------------------------------------------------------------

    def readable(self, request: HttpRequest) -> Readable | None:
        """Return the projects of a list that is read from several databases, by these; None for one that is not."""
        db = database(request)
        is_of_one = request.GET.get(ProjectFilter.parameter_name) or getattr(request, "is_in_one_database", False)
        if is_of_one or not project_aliases() or not is_of_traces(self.model):
            return None
        found = readable(request, self.scope(request))
        return None if found.by_db.keys() == {db} else found

    def use_database_with(self, request: HttpRequest, keys: Sequence[UUID]) -> bool:
        """Use the database that has the rows of an action for the rest of the request. Return False if several have."""
        found = [
            db
            for db, _scope in self.readable(request) or ()
            if db.rows(self.model._base_manager).filter(pk__in=keys).exists()
        ]
        if len(found) == 1:
            use_alias(request, found[0].alias)
            request.is_in_one_database = True  # type: ignore[attr-defined]  # read only by `readable` and by project_scope
        return len(found) < 2

    # --- Rows -----------------------------------------------------------------------------------------------

    def row_name(self, row: Any) -> str:
        """Return the name of the row for screen readers, without hidden characters; Django's default would load deferred columns."""
        return str(row.pk)

    def contents(self, rows: Iterable[Any]) -> str:
        """Return the numbers of rows that are deleted or restored together with `rows`, as a sentence, or ""."""
        return ""

    def missing(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the list with a warning that the row does not exist."""
        text = _("There is no %(name)s with this ID. It may have been purged.")
        self.message_user(request, text % {"name": self.opts.verbose_name}, messages.WARNING)
        return HttpResponseRedirect(self.list_url())

    def field_name(self, name: str) -> str:
        """Return the display name of a column."""
        field = self.opts.get_field(name)
        assert isinstance(field, Field), f"{name} is a column"
        return str(field.verbose_name)

    def action_checkbox(self, obj: Model) -> SafeString:
        label = _("Select %(name)s") % {"name": self.row_name(obj)}
        # Django's widget renders a template, for each row.
        return format_html(
            '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="{}">',
            helpers.ACTION_CHECKBOX_NAME,
            obj.pk,
            label,
        )

    # --- What Django's pages do with the trash ---------------------------------------------------------------

    @property
    def given_trash(self) -> Trash:
        """The trash of an admin that has one."""
        assert self.trash is not None, "nothing is deleted without a trash: see has_delete_permission"
        return self.trash

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if self.trash is None:
            return False
        return self.has_editor_permission(request, obj) and (obj is None or self.trash.is_alive(obj))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        if self.trash is None:
            return super().get_object(request, object_id, from_field)
        return self.trash.find(self, request, object_id)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if self.trash is None:
            return super().delete_view(request, object_id, extra_context)
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request):
            raise PermissionDenied
        if row is None:
            return self.missing(request)
        if reason := self.trash.already_deleted(self, row):
            # Deleted in another tab or by another user while this page was open.
            self.message_user(request, reason, messages.INFO)
            return HttpResponseRedirect(url_of(self, row.pk))
        return super().delete_view(request, object_id, {"contents": self.contents([row]), **(extra_context or {})})

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.given_trash.delete_row(self, request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: Any) -> HttpResponse:
        row = self.get_object(request, str(obj_id))
        return self.given_trash.after_delete(self, request, obj_display if row is None else self.row_name(row), obj_id)

    def get_deleted_objects(
        self, objs: Iterable[Any], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return the rows to name in the confirmation. Django would collect (and count) all rows below them."""
        names = [self.row_name(row) for row in objs]
        return names, {str(self.opts.verbose_name_plural): len(names)}, set(), []

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # The breadcrumbs name the row.
        return name_deletions(
            super().history_view(request, object_id, {"title": _("History"), **(extra_context or {})})
        )


def without_invalid(parameters: QueryDict, error: IncorrectLookupParameters) -> str:
    """Return the query of a list without what was invalid, and of its first page."""
    kept = parameters.copy()
    wrong = [CURSOR]
    if isinstance(error, InvalidFilter):
        wrong += [name for name, value in parameters.items() if str(value).strip() == error.value]
    elif CURSOR not in parameters:
        return ""
    for name in wrong:
        kept.pop(name, None)
    return kept.urlencode()


def _invalid_filter(error: IncorrectLookupParameters) -> str:
    if not isinstance(error, InvalidFilter):
        return _("Invalid filter. The full list is shown.")
    words = {"name": error.name, "value": one_line(error.value, VALUE_CHARACTERS)}
    if error.reason:
        return _("Invalid filter: %(name)s “%(value)s”. %(reason)s It is left out.") % {
            **words,
            "reason": error.reason,
        }
    return _("Invalid filter: %(name)s “%(value)s”. It is left out.") % words
