"""Admin lists of big tables: newest first by primary key, no COUNT, page 10,000 as fast as page 1.

A page is found by the id of the row beside it (row_pages.py). The number of rows is not shown. A query
that reads for too long, because its filters match few rows, is stopped after a few seconds with a notice on the page.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from itertools import chain
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import label_for_field
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Model, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from access_app.admin_roles import RoleAdmin
from access_app.db import alias_in_use, project_aliases, use, using
from access_app.db.reading import is_of_traces
from access_app.errors import InvalidInput
from access_app.places import scopes_by_database
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import SavedView
from messages_app.safe_text import one_line
from messages_app.sql.batch import was_stopped
from messages_app.sql.merged import MergedRows
from messages_app.sql.pagination import Cursor, IdRange, PageRequest, QuerySetKeys

from .away import leave_out, note_databases
from .columns import COLUMNS, columns_of, forget_columns, in_order, keep_columns, unknown_columns
from .downloads import Source, value_file
from .exports import EXPORT_ROWS, FORMS, Columns, export
from .filters import (
    BY_ACTIVITY,
    CURSOR,
    ORDER,
    BarFilter,
    Chip,
    InvalidFilter,
    OrderFilter,
    ProjectFilter,
    parameters_of,
)
from .row_pages import RowPage, TimeCursor, nested_loops, read_rows, read_rows_by_time, time_limit
from .saved_views import VIEWS_SHOWN, ChangedViewForm, SavedViewForm, errors_of, query_of, views_of

ROWS_AT_A_TIME = 200
"""Rows of a page of a walk: see `KeysetAdmin.all_keys`."""
VALUE_CHARACTERS = 80
MOST_WORDS = 6
"""Of a search without results, up to which each word can be searched for by itself."""


class TookTooLong(Exception):
    """A walk over a list was stopped, because reading a page of it took longer than the list may take."""


def is_walk(request: HttpRequest) -> bool:
    """Return whether the request stands for a page of a walk over the whole list: see `KeysetAdmin.all_keys`."""
    return getattr(request, "is_walk", False)


def note_end_of_search(request: HttpRequest, reached: UUID) -> None:
    """Note that the search of a list stopped early: what is older than `reached` was not searched yet, in one of its databases."""
    known = end_of_search(request)
    request.search_reached = reached if known is None else max(known, reached)  # type: ignore[attr-defined]


def end_of_search(request: HttpRequest) -> UUID | None:
    """Return the place where the search of a list stopped; None if it did not stop early."""
    return getattr(request, "search_reached", None)


class KeysetChangeList(ChangeList):
    """Django's change list without its counting, sorting and page numbers."""

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
    def offers_all(self) -> bool:
        """Return whether actions can apply to all matching rows: only if there are more than those of the page."""
        is_longer = bool(self.newer_query_string or self.older_query_string)
        return self.keyset_admin.acts_on_all and is_longer and self.is_of_one_database

    @property
    def contradictions(self) -> list[str]:
        """Why no row can match, whatever the rows are."""
        return [spec.contradiction for spec in self.bar_filters if spec.contradiction]

    @property
    def bar_filters(self) -> list[BarFilter]:
        """The controls of the filter bar. Lists without a choice of order have none for it."""
        return [spec for spec in self.filter_specs if isinstance(spec, BarFilter)]

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
        words = list(dict.fromkeys(self.query.split()))
        is_plain = all(word.isalnum() and len(word) > 1 for word in words)
        if not self.keyset_admin.api_searches or not is_plain or not 1 < len(words) <= MOST_WORDS:
            return []
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
    def not_in_api(self) -> list[str]:
        """The names of what the list is narrowed or ordered by and the REST API has no parameter for."""
        names = [str(spec.title) for spec in self.bar_filters if spec.given and not spec.in_api]
        searched = self.query.strip() and not self.keyset_admin.api_searches
        return [_("search"), *names] if searched else names

    def api_parameters(self) -> dict[str, str]:
        """Return the parameters of the REST API that find the same rows, but for `not_in_api`."""
        found: dict[str, str] = {}
        for spec in self.bar_filters:
            if spec.in_api:
                found |= spec.api_parameters()
        if self.query.strip() and self.keyset_admin.api_searches:
            found["q"] = self.query
        return found

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(request, *args, **kwargs)
        except IncorrectLookupParameters as error:
            # The admin redirects to the list without filters, which shows this message.
            messages.warning(request, _invalid_filter(error))
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
        admin_ = self.keyset_admin
        try:
            # A walk is in the order of ids: a row that becomes active meanwhile would escape an order by activity.
            column = None if is_walk(request) else admin_.order_column(request)
            read_page_of = self._page_reader(column, admin_.page_size(request), request.GET.get(CURSOR))
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
        self.list_display = admin_.shown_columns(request, self.list_display, page.rows)
        if page.previous:
            self.newer_query_string = self.get_query_string({CURSOR: page.previous})
        if page.next:
            self.older_query_string = self.get_query_string({CURSOR: page.next})

    def _rows(self, request: HttpRequest, stack: ExitStack) -> MergedRows[QuerySetKeys]:
        """Return the rows of the list in the database in use, or in each one with projects of the reader, limited in time.

        A page says which databases it could not read; a walk fails.
        """
        admin_ = self.keyset_admin
        scopes = admin_.scopes(request)
        if scopes is None:
            stack.enter_context(time_limit(admin_.list_time_limit_ms))
            return MergedRows(parts={alias_in_use(): QuerySetKeys(self.queryset)})
        parts: dict[str, QuerySetKeys] = {}
        here = alias_in_use()
        for alias, scope in scopes.items():
            with using(alias):
                try:
                    rows = self.queryset if alias == here else self._filtered(request)
                    stack.enter_context(time_limit(admin_.list_time_limit_ms))
                except OperationalError as error:
                    if is_walk(request):
                        raise
                    leave_out(request, alias, error)
                    continue
                parts[alias] = QuerySetKeys(visible_to(rows, scope, admin_.project_path))
        if (reached := end_of_search(request)) is not None:
            # Beyond the place where the first of them stopped the others would look complete. The next page begins there.
            parts = {alias: part.within(IdRange(lower=reached)) for alias, part in parts.items()}
        self.is_of_one_database = False
        note_databases(request, parts)
        return MergedRows(parts=parts)

    def _filtered(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the database in use. Filters and searches look up names there."""
        rows = self.root_queryset
        for spec in self.filter_specs:
            narrowed = spec.queryset(request, rows)
            rows = rows if narrowed is None else narrowed
        found, _may_repeat = self.model_admin.get_search_results(request, rows, self.query)
        return found

    def _read_keys(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        with nested_loops():
            return self.root_queryset.order_by().in_bulk(keys)

    def _page_reader(
        self, column: str | None, size: int, cursor: str | None
    ) -> Callable[[MergedRows[QuerySetKeys]], RowPage]:
        """Return a function that reads the requested page. Raise InvalidInput for a cursor of another order."""
        if column is not None:
            place = TimeCursor.parse(cursor) if cursor else None
            return lambda rows: read_rows_by_time(rows, column, size, place, self._read_keys)
        wanted = PageRequest(limit=size, cursor=Cursor.parse(cursor) if cursor else None)
        return lambda rows: read_rows(rows, wanted, self._read_keys)


class KeysetAdmin(RoleAdmin):
    """A read-only ModelAdmin whose list is a KeysetChangeList.

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
    acts_on_all: ClassVar[bool] = False
    """Whether the actions of the list understand "select all that match"."""
    downloads: ClassVar[Mapping[str, Source]] = {}
    """Values that the pages offer as files, by the name of their table in the URL."""
    all_columns: ClassVar[Sequence[str]] = ()
    """The columns that a reader can choose, in order; `list_display` has the usual ones. Empty: the columns are fixed.
    Read by `known_columns`, because the same rows may be listed as something else."""
    api_name: ClassVar[str] = ""
    """The name of the URL of the same list in the REST API; "" if it has none."""
    api_searches: ClassVar[bool] = False
    """Whether `q` means the same there."""
    export_columns: ClassVar[Columns] = {}
    """The columns of an export of the list; a list without them has none."""

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, f"{self.opts.app_label}_{self.opts.model_name}"
        value = path("value/<slug:table>/<uuid:key>/<slug:column>/", wrap(self.value_view), name=f"{name}_value")
        exported = path("export/<slug:form>/", wrap(self.export_view), name=f"{name}_export")
        columns = path("columns/", wrap(self.columns_view), name=f"{name}_columns")
        saved = path("views/", wrap(self.save_view_view), name=f"{name}_save_view")
        changed = path("views/<int:key>/", wrap(self.saved_view_view), name=f"{name}_saved_view")
        return [value, exported, columns, saved, changed, *super().get_urls()]

    def value_view(self, request: HttpRequest, table: str, key: UUID, column: str) -> HttpResponse:
        """Send one stored value as a file."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return value_file(self.downloads, table, key, column, self.scope(request)) or self.missing(request)

    def export_view(self, request: HttpRequest, form: str) -> HttpResponseBase:
        """Stream the rows that the list is filtered to, newest first, at most EXPORT_ROWS."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if not self.export_columns or form not in FORMS:
            raise Http404
        pages = self.all_keys(request, EXPORT_ROWS)
        try:
            # Read before the answer begins, so that a filter that is invalid or too slow is explained on the list.
            first = next(pages, [])
            name, rows = str(self.opts.model_name), self.get_queryset(request)
            scopes = self.scopes(request)
            if scopes is None:
                parts = {alias_in_use(): rows}
            else:
                parts = {alias: visible_to(rows, scope, self.project_path) for alias, scope in scopes.items()}
            return export(name, form, parts, self.export_columns, chain([first], pages))
        except IncorrectLookupParameters:
            return HttpResponseRedirect(self.list_url())
        except TookTooLong:
            self.message_user(
                request, _("The export took too long and was stopped. Narrow the list."), messages.WARNING
            )
            return HttpResponseRedirect(self.list_url(request.GET.urlencode()))

    def all_keys(self, request: HttpRequest, most: int) -> Iterator[list[Any]]:
        """Yield the primary keys of the rows that the list is filtered to, newest first, at most `most`, in lists.

        It walks over the pages of the list, each with the time limit of a page. Raise IncorrectLookupParameters for an
        invalid filter, and TookTooLong.
        """
        cursor, left = None, most
        while left > 0:
            parameters = request.GET.copy()
            parameters.pop(CURSOR, None)
            if cursor is not None:
                parameters[CURSOR] = cursor
            page = copy(request)
            page.GET = parameters  # type: ignore[assignment]  # nothing changes it
            page.is_walk = True  # type: ignore[attr-defined]  # read only by `is_walk`
            page.search_reached = None  # type: ignore[attr-defined]  # not that of the request
            found = self.get_changelist_instance(page)
            assert isinstance(found, KeysetChangeList), "see get_changelist"
            if found.was_stopped:
                raise TookTooLong
            keys, cursor = [row.pk for row in found.result_list], found.older_cursor
            reached = end_of_search(page)
            if reached is not None:
                # Rows that were found by their names may be older than what was searched; the next page has them again.
                keys = [key for key in keys if key >= reached]
                cursor = str(Cursor(position=reached, newer=False))
            yield keys[:left]
            left -= len(keys)
            if cursor is None:
                return

    def scopes(self, request: HttpRequest) -> dict[str, ProjectScope] | None:
        """Return the projects of a list that is read from several databases, by their aliases; None for one that is not."""
        is_of_one = request.GET.get(ProjectFilter.parameter_name) or getattr(request, "is_in_one_database", False)
        if is_of_one or not project_aliases() or not is_of_traces(self.model):
            return None
        found = scopes_by_database(self.scope(request))
        return None if found.keys() == {alias_in_use()} else found

    def use_database_with(self, request: HttpRequest, keys: Sequence[UUID]) -> bool:
        """Use the database that has the rows of an action for the rest of the request. Return False if several have."""
        found = []
        for alias in self.scopes(request) or ():
            with using(alias):
                if self.model._base_manager.filter(pk__in=keys).exists():
                    found.append(alias)
        if len(found) == 1:
            use(found[0])
            request.is_in_one_database = True  # type: ignore[attr-defined]  # read only by `scopes` and by project_scope
        return len(found) < 2

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "GET" and not all(request.GET.values()):
            # A form sends its empty fields, too; without them the address says what the list shows.
            given = QueryDict(mutable=True)
            for name, values in request.GET.lists():
                given.setlist(name, [value for value in values if value])
            return HttpResponseRedirect(f"{request.path}?{given.urlencode()}")
        columns = self.columns_offered(request)
        if columns and (warning := unknown_columns(request.GET, self.known_columns(request.GET))):
            self.message_user(request, warning, messages.WARNING)
        context = {
            "title": self.list_title(request),
            "export_forms": list(FORMS) if self.export_columns else [],
            "export_rows_shown": f"{EXPORT_ROWS:,}",
            "saved_views": views_of(self.list_name(request.GET), request)[:VIEWS_SHOWN],
            "current_query": query_of(request.GET, self.said_by_title(request.GET)),
            "list_order": self.list_order(request),
            "columns_offered": columns,
            "address_query": request.GET.urlencode(),
        }
        response = super().changelist_view(request, {**context, **(extra_context or {})})
        if self.api_name and isinstance(response, TemplateResponse) and response.context_data is not None:
            found = response.context_data.get("cl")
            if isinstance(found, KeysetChangeList):
                response.context_data |= self.api_request(request, found)
        return response

    def list_order(self, request: HttpRequest) -> str:
        """Return the order of the list, for people."""
        return _("Latest activity first") if self.order_column(request) else _("Newest first")

    def api_request(self, request: HttpRequest, changelist: KeysetChangeList) -> dict[str, Any]:
        """Return the request to the REST API that finds the rows of the list."""
        query = urlencode(changelist.api_parameters())
        address = reverse(f"tracesite:{self.api_name}") + (f"?{query}" if query else "")
        command = f'curl -H "Authorization: Bearer $KEY" {shlex.quote(request.build_absolute_uri(address))}'
        return {"api_address": address, "api_command": command, "not_in_api": ", ".join(changelist.not_in_api)}

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        if not self.all_columns:
            return list(super().get_list_display(request))
        known = getattr(request, "list_columns", None)
        if known is None:
            known = columns_of(
                self.list_name(request.GET),
                request.user,
                request.GET,
                self.known_columns(request.GET),
                self.usual_columns(request),
            )
            # Kept, because Django asks several times.
            request.list_columns = known  # type: ignore[attr-defined]  # read only here
        return list(known)

    def known_columns(self, parameters: QueryDict) -> Sequence[str]:
        """Return the columns that a reader of the list with these parameters can choose. The first one names the row."""
        return self.all_columns

    def usual_columns(self, request: HttpRequest) -> Sequence[str]:
        """Return the columns of readers who chose none."""
        return [str(one) for one in self.list_display]

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Return the columns that the page shows for `rows`, for a column that few pages need."""
        return list(columns)

    def columns_offered(self, request: HttpRequest) -> list[tuple[str, str, bool]]:
        """Return the name and label of each column that can be chosen, and whether it is shown."""
        shown = self.get_list_display(request)
        known = self.known_columns(request.GET)
        return [(name, str(label_for_field(name, self.model, self)), name in shown) for name in known]

    def columns_view(self, request: HttpRequest) -> HttpResponse:
        """Show the list with the chosen columns, and with "keep" also from now on; "forget" brings back the usual ones."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.all_columns:
            raise Http404
        query = QueryDict(request.POST.get("query", ""), mutable=True)
        query.pop(COLUMNS, None)
        chosen = in_order(request.POST.getlist("column"), self.known_columns(query))
        if "forget" in request.POST:
            forget_columns(self.list_name(query), request.user)
        elif "keep" in request.POST:
            keep_columns(self.list_name(query), request.user, chosen)
            self.message_user(request, _("This list shows you these columns from now on."), messages.SUCCESS)
        else:
            query[COLUMNS] = ",".join(chosen)
        return HttpResponseRedirect(self.list_url(query.urlencode(safe=",")))

    def save_view_view(self, request: HttpRequest) -> HttpResponse:
        """Save the filters of the list as a view of the user, and return to the list."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        assert request.user.is_authenticated, "the admin lets nobody else in"
        query = QueryDict(request.POST.get("query", ""))
        view = SavedView(owner_id=request.user.pk, list_name=self.list_name(query))
        form = SavedViewForm(request.POST, instance=view)
        if form.is_valid():
            self.message_user(request, _("The view “%(name)s” was saved.") % {"name": form.save()}, messages.SUCCESS)
        else:
            self.message_user(request, " ".join(errors_of(form)), messages.ERROR)
        return HttpResponseRedirect(self.list_url(query_of(query)))

    def saved_view_view(self, request: HttpRequest, key: int) -> HttpResponse:
        """Rename, share or delete a view: its owner only."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        list_name = SavedView.objects.filter(pk=key).values_list("list_name", flat=True).first() or ""
        label, _separator, said = list_name.partition("?")
        view = next((view for view in views_of(list_name, request) if view.pk == key), None)
        if view is None or label != self.opts.label_lower:
            raise Http404
        if view.owner_id != request.user.pk:
            raise PermissionDenied
        words = {"name": view.name}
        if request.method == "POST" and "delete" in request.POST:
            view.delete()
            self.message_user(request, _("The view “%(name)s” was deleted.") % words, messages.SUCCESS)
            return HttpResponseRedirect(self.list_url(said))
        form = ChangedViewForm(request.POST if request.method == "POST" else None, instance=view)
        if form.is_valid():
            self.message_user(request, _("The view “%(name)s” was saved.") % {"name": form.save()}, messages.SUCCESS)
            return HttpResponseRedirect(self.list_url(view.query))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Saved view"),
            "opts": self.opts,
            "form": form,
            "view": view,
            "list_url": self.list_url(view.query),
        }
        return TemplateResponse(request, "admin/saved_view_form.html", context)

    def list_url(self, query: str = "") -> str:
        """Return the URL of the list, with a query string."""
        url = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")
        return f"{url}?{query}" if query else url

    def page_size(self, request: HttpRequest) -> int:
        """Return the number of rows of a page."""
        return ROWS_AT_A_TIME if is_walk(request) else self.list_per_page

    def order_column(self, request: HttpRequest) -> str | None:
        """Return the time by which the list is ordered, latest first; None for the primary key."""
        by_activity = request.GET.get(ORDER) == BY_ACTIVITY and OrderFilter in self.get_list_filter(request)
        return "active_at" if by_activity else None

    def listed_columns(self, request: HttpRequest) -> list[str]:
        """Return the columns of the table that the list shows by their own names, for `only`: Django would read each of the
        others again for each row."""
        stored = {field.name for field in self.opts.concrete_fields}
        return [name for name in self.get_list_display(request) if name in stored]

    def list_title(self, request: HttpRequest) -> str:
        return capfirst(str(self.opts.verbose_name_plural))

    def said_by_title(self, parameters: Mapping[str, str]) -> frozenset[str]:
        """Return the parameters of a list that its title says, so that it has no chips for them."""
        return frozenset()

    def list_name(self, parameters: Mapping[str, str]) -> str:
        """Return the name under which readers keep columns and views of the list with these parameters.

        It is the label of the model, with what the title of the list says: runs are not all messages.
        """
        said = [(name, parameters[name]) for name in sorted(self.said_by_title(parameters))]
        return f"{self.opts.label_lower}?{urlencode(said)}" if said else self.opts.label_lower

    def missing(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the list with a warning that the row does not exist."""
        text = _("There is no %(name)s with this ID. It may have been purged.")
        self.message_user(request, text % {"name": self.opts.verbose_name}, messages.WARNING)
        return HttpResponseRedirect(self.list_url())

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Django would accept any column as a filter, indexed or not.
        assert request is not None, "Django 5.2 gives the request"
        filters: Iterable[Any] = self.get_list_filter(request)
        known = any(lookup in parameters_of(list_filter) for list_filter in filters)
        return known and "\x00" not in value  # PostgreSQL rejects U+0000

    def row_name(self, row: Any) -> str:
        """Return the name of the row for screen readers, without hidden characters; Django's default would load deferred columns."""
        return str(row.pk)

    def action_checkbox(self, obj: Model) -> SafeString:
        label = _("Select %(name)s") % {"name": self.row_name(obj)}
        checkbox = forms.CheckboxInput({"class": "action-select", "aria-label": label}, lambda value: False)
        return checkbox.render(helpers.ACTION_CHECKBOX_NAME, str(obj.pk))


def _invalid_filter(error: IncorrectLookupParameters) -> str:
    if not isinstance(error, InvalidFilter):
        return _("Invalid filter. The full list is shown.")
    words = {"name": error.name, "value": one_line(error.value, VALUE_CHARACTERS)}
    if error.reason:
        return _("Invalid filter: %(name)s “%(value)s”. %(reason)s The full list is shown.") % {
            **words,
            "reason": error.reason,
        }
    return _("Invalid filter: %(name)s “%(value)s”. The full list is shown.") % words
