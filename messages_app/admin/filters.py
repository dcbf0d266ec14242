"""Filters of the admin lists: choices, ranges of times and of numbers, and names to type in.

Each is a control of the filter bar above the rows (templates/admin/filter_bar.html), whose one form sends them all. Their
parameters have the names and meanings of the REST API, so that the address of a list is also a request to it. An index serves
each of them but the durations, which are compared row by row; a list that takes too long is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin import ListFilter, ModelAdmin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from access_app.db import Database
from access_app.errors import Conflict, InvalidInput, NotFound
from access_app.masked_reading import RowMask, mask_of
from access_app.models import Project, Role
from access_app.roles import access
from access_app.visibility import ProjectScope, visible_to
from messages_app.http.filters import ListFilterSet, NamesFilter, clean
from messages_app.queries import find_session
from messages_app.sql.pagination import EVERY_ID, Cursor, IdRange
from tracesite_sdk.records import ids

from .time_zones import entry_of

ANY_TIME = "any"
"""The period without bounds."""
_REMEMBERED = "home"
"""The key in the session of what the reader chose last."""
CURSOR = "cursor"
ORDER = "order"
# Maximum number of projects or names that a page offers; others can be typed in.
MANY = 200
ACCEPTED_TIMES = _("Use a date or a time since 1970, such as 2026-11-27 or 2026-11-27T20:30.")
Times = tuple[datetime | None, datetime | None]
"""Two bounds, of which the upper one is exclusive; None is unbounded."""
REVERSED_TIMES = _("“From” must be earlier than “Until”.")


def readable_projects(request: HttpRequest) -> dict[str, int]:
    """Return the ids of the first MANY projects that a reader of the admin may see, by slug."""
    found: dict[str, int] | None = getattr(request, "readable_projects", None)
    if found is None:
        projects = visible_to(Project.objects.order_by("slug"), access(request).scope(Role.VIEWER), "pk")
        found = dict(projects.values_list("slug", "pk")[:MANY])
        # Kept, because the filter and the columns of a list ask.
        request.readable_projects = found  # type: ignore[attr-defined]  # read only here
    return found


def scope_of_page(request: HttpRequest, project_id: int | None) -> ProjectScope:
    """Return the project that is chosen on a page, or all that the reader may see; `project_id` is one of these."""
    return access(request).scope(Role.VIEWER) if project_id is None else ProjectScope(frozenset([project_id]))


def remembered(request: HttpRequest) -> dict[str, str]:
    """Return what the reader chose last: the parameters of a range of times, and of the first page a project, too."""
    found: dict[str, str] = request.session.get(_REMEMBERED, {})
    return dict(found)


def remember(request: HttpRequest, chosen: Mapping[str, str]) -> None:
    """Note what the reader chose, for the next pages and visits."""
    if remembered(request) != chosen:
        request.session[_REMEMBERED] = dict(chosen)


def remember_period(request: HttpRequest) -> None:
    """Note the period in the address, if there is one. Between two times are mostly links of charts, which choose nothing."""
    name = request.GET.get(CreatedFilter.parameter_names[0], "")
    if name in {known for known, _label, _times_at in CreatedFilter.PERIODS}:
        others = {key: value for key, value in remembered(request).items() if key not in CreatedFilter.parameter_names}
        remember(request, {**others, CreatedFilter.parameter_names[0]: name})


def remembered_query(request: HttpRequest) -> str:
    """Return the parameters of the range of times that the reader chose last, for the address of a list; "" if that is any."""
    given = remembered(request)
    times = {name: given[name] for name in CreatedFilter.parameter_names if given.get(name, ANY_TIME) != ANY_TIME}
    return urlencode(times)


class InvalidFilter(IncorrectLookupParameters):
    """A filter has a value that it cannot have; `reason` is a sentence for the user that says what it accepts, or ""."""

    def __init__(self, name: str | Promise, value: str, reason: str | Promise = "") -> None:
        super().__init__(name, value, reason)
        self.name, self.value, self.reason = str(name), value, str(reason)


def one_of(values: Iterable[str]) -> str:
    """Return the reason of an InvalidFilter that names the accepted values."""
    return _("Use one of: %(values)s.") % {"values": ", ".join(values)}


@dataclass(frozen=True, kw_only=True)
class ValueLink:
    """A value of a filter that one click chooses, above the rows."""

    label: str
    url: str
    """The query string of the list with it."""
    is_chosen: bool


@dataclass(frozen=True, kw_only=True)
class Chip:
    """An active filter above the rows."""

    label: str
    text: str
    without: str
    """The query string of the list without this filter."""


class BarFilter(ListFilter):
    """The base of all filters: a control of the filter bar with one or more parameters."""

    parameter_name: str = ""
    parameter_names: Sequence[str] = ()
    """Instead of `parameter_name`, if there are several."""
    in_api: ClassVar[bool] = True
    """Whether the REST API has these parameters."""
    any_value: ClassVar[str] = ""
    """The value of the link that chooses any."""

    def __init__(
        self, request: HttpRequest, params: dict[str, list[str]], model: type[Any], model_admin: ModelAdmin[Any]
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.request = request
        given = {name: params.pop(name)[-1].strip() for name in parameters_of(type(self)) if name in params}
        self.given = {name: value for name, value in given.items() if value}
        """The values of the parameters, as they were typed, without empty ones."""

    @property
    def value(self) -> str:
        return self.given.get(self.parameter_name, "")

    @property
    def contradiction(self) -> str:
        """Say why no row can match the values together; "" if one can."""
        return ""

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(parameters_of(type(self)))

    def shown_value(self) -> str:
        """Return what the chip says; asked only for filters that are given."""
        return self.value

    def chips(self, changelist: ChangeList) -> Iterator[Chip]:
        if self.given:
            without = changelist.get_query_string(dict.fromkeys(parameters_of(type(self))))
            yield Chip(label=str(self.title), text=self.shown_value(), without=without)

    def linked_values(self) -> Sequence[tuple[str, Any]]:
        """Return the values that links above the rows choose, with their labels, `any_value` among them."""
        return ()

    def links(self, changelist: ChangeList) -> list[ValueLink]:
        """Return these links, which keep the other filters."""
        name, *others = parameters_of(type(self))
        chosen = self.given.get(name, self.any_value) if self.given.keys() <= {name} else None
        return [
            ValueLink(
                label=str(label),
                url=changelist.get_query_string({**dict.fromkeys(others), name: value or None}, [CURSOR]),
                is_chosen=value == chosen,
            )
            for value, label in self.linked_values()
        ]

    def api_parameters(self) -> Mapping[str, str]:
        """Return the parameters of the REST API that mean the same."""
        return self.given


class ChoiceFilter(BarFilter):
    """One of a few values."""

    template = "admin/choice_filter.html"

    def options(self) -> Sequence[tuple[str, Any]]:
        """Return the values with their labels. Implemented by each subclass."""
        raise NotImplementedError

    def shown_value(self) -> str:
        return str(dict(self.options()).get(self.value, self.value))

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        """Yield one dict with the context of the template."""
        yield {"name": self.parameter_name, "value": self.value, "options": self.options(), "any": _("Any")}


class ProjectFilter(ChoiceFilter):
    title = _("project")
    parameter_name = "project"

    def __init__(
        self, request: HttpRequest, params: dict[str, list[str]], model: type[Any], model_admin: ModelAdmin[Any]
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.keys = readable_projects(request)

    def options(self) -> Sequence[tuple[str, Any]]:
        # One that is not among the first MANY can be given in the address.
        others = [self.value] if self.value and self.value not in self.keys else []
        return [(slug, slug) for slug in (*self.keys, *others)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value:
            return queryset
        # By the id, because the indexes of a project's pages begin with it.
        key = self.keys.get(self.value) or Project.objects.filter(slug=self.value).values_list("pk", flat=True).first()
        return queryset.filter(project_id=key) if key is not None else queryset.none()


class CreatedFilter(BarFilter):
    """Filter by creation time: the last hours or days, or from (inclusive) and until (exclusive) a time, in UTC.

    The times become bounds of the primary key, so that partitions outside of the range are not read.
    """

    title = _("time")
    template = "admin/created_filter.html"
    parameter_names: Sequence[str] = ("created", "created_after", "created_before")
    """The names for the period, the lower bound and the upper bound."""

    PERIODS: Sequence[tuple[str, Promise, Callable[[datetime], Times]]] = (
        ("1h", _("Last hour"), lambda now: (now - timedelta(hours=1), None)),
        ("today", _("Today"), lambda now: (_midnight(now, 0), None)),
        ("yesterday", _("Yesterday"), lambda now: (_midnight(now, 1), _midnight(now, 0))),
        ("24h", _("Last 24 hours"), lambda now: (now - timedelta(hours=24), None)),
        ("7d", _("Last 7 days"), lambda now: (now - timedelta(days=7), None)),
        ("30d", _("Last 30 days"), lambda now: (now - timedelta(days=30), None)),
        (ANY_TIME, _("Any time"), lambda _now: (None, None)),
    )
    """The names, and when each begins and ends, None for now."""
    LINKED = frozenset(["today", "yesterday", "7d", "30d", ANY_TIME])
    any_value = ANY_TIME

    def linked_values(self) -> Sequence[tuple[str, Any]]:
        # Beside these the one that is chosen, such as that of the page one came from.
        chosen = self.given.get(self.parameter_names[0])
        return [(name, label) for name, label, _length in self.PERIODS if name in self.LINKED or name == chosen]

    @property
    def contradiction(self) -> str:
        _period, after, before = (self.given.get(name) for name in self.parameter_names)
        is_reversed = after and before and _instant(after, self.title) >= _instant(before, self.title)
        return str(REVERSED_TIMES) if is_reversed else ""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**created_ids(self.given, self.title).of("pk"))

    def shown_value(self) -> str:
        period, *limits = (self.given.get(name, "") for name in self.parameter_names)
        after, before = (entry_of(limit).replace("T", " ").removesuffix(":00") for limit in limits)
        range_ = f"{after} – {before}".strip() if after or before else ""
        label = next((str(label) for name, label, _length in self.PERIODS if name == period), period)
        return ", ".join(part for part in (label, range_) if part)

    def api_parameters(self) -> Mapping[str, str]:
        # The API has no periods: what they mean now, to the second.
        lower, upper = _times(self.given, self.parameter_names, self.title, timezone.now().replace(microsecond=0))
        _period, after, before = self.parameter_names
        return {name: _iso(time) for name, time in ((after, lower), (before, upper)) if time}

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        """Yield one dict with the context of the template."""
        name_of_period, name_of_lower, name_of_upper = self.parameter_names
        yield {
            "name": name_of_period,
            "value": self.given.get(name_of_period, ""),
            "options": [(name, label) for name, label, _length in self.PERIODS if name != ANY_TIME],
            "any": _("Any time"),
            "name_of_lower": name_of_lower,
            "name_of_upper": name_of_upper,
            "after": self.given.get(name_of_lower, ""),
            "before": self.given.get(name_of_upper, ""),
            "contradiction": self.contradiction,
        }

    def times(self, column: str) -> dict[str, datetime]:
        """Return the bounds as filter arguments on a column with times."""
        lower, upper = _times(self.given, self.parameter_names, self.title, timezone.now())
        return {f"{column}__{lookup}": time for lookup, time in (("gte", lower), ("lt", upper)) if time}


class BeganFilter(CreatedFilter):
    """Filter sessions by the time of their start."""

    title = _("start time")


class ActiveFilter(CreatedFilter):
    """Filter sessions by their last activity."""

    title = _("last activity")
    parameter_names = ("active", "active_after", "active_before")

    def linked_values(self) -> Sequence[tuple[str, Any]]:
        return ()  # its list has those of the start

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**self.times("active_at"))


@dataclass(frozen=True, kw_only=True)
class Sort:
    """An order of a list other than that of its rows' ids."""

    column: str
    """The column of the list whose header leads to it."""
    value: str | Combinable
    """A field or an expression: the greatest first, unknown ones last."""
    title: Promise
    is_indexed: bool = False
    """Whether the whole list can be read in this order, by the time that `value` names; otherwise only its newest rows are sorted."""


class OrderFilter(ChoiceFilter):
    """The order of a list: one of `KeysetAdmin.sorts`."""

    title = _("order")
    parameter_name = ORDER
    in_api = False

    def __init__(
        self, request: HttpRequest, params: dict[str, list[str]], model: type[Any], model_admin: ModelAdmin[Any]
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.sorts: Mapping[str, Sort] = getattr(model_admin, "sorts", {})

    def options(self) -> Sequence[tuple[str, Any]]:
        return [(name, sort.title) for name, sort in self.sorts.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value and self.value not in self.sorts:
            raise InvalidFilter(self.title, self.value, one_of(self.sorts))
        return queryset

    def chips(self, changelist: ChangeList) -> Iterator[Chip]:
        # The bar states the order of each list.
        return iter(())

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        (context,) = super().choices(changelist)
        yield {**context, "any": _("Newest first")}


def created_ids(parameters: Mapping[str, str], title: str | Promise = CreatedFilter.title) -> IdRange:
    """Return the range of ids for the parameters of CreatedFilter. Raise InvalidFilter."""
    lower, upper = _times(parameters, CreatedFilter.parameter_names, title, timezone.now())
    return IdRange(lower=ids.first_id_at(lower) if lower else None, upper=ids.first_id_at(upper) if upper else None)


def ids_of_page(request: HttpRequest) -> IdRange:
    """Return the range of ids of the requested page, as limited by times and cursor. Raise IncorrectLookupParameters.

    Filters on rows below search only its months: 0.4 to 5 ms over 36 months, where a range computed from each row took
    44 ms.
    """
    parameters = {name: request.GET[name] for name in CreatedFilter.parameter_names if name in request.GET}
    try:
        place = Cursor.parse(request.GET[CURSOR]).ids if CURSOR in request.GET else IdRange()
    except InvalidInput as error:
        raise IncorrectLookupParameters from error
    return created_ids(parameters) & place


class NameFilter(BarFilter):
    """Filter by a name that is typed in, because a list of choices may be too long. Suggestions come with the facets."""

    template = "admin/name_filter.html"

    def suggestions(self) -> Sequence[str]:
        return ()

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        """Return the rows of `queryset` that belong to `name`. Implemented by each subclass."""
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return self.having(request, queryset, self.value) if self.value else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        """Yield one dict with the context of the template."""
        yield {"name": self.parameter_name, "value": self.value}


class SessionNameFilter(NameFilter):
    """Filter by a session, in the trash or not: its id or external id, in the project of the project filter if there is one."""

    title = _("session ID")
    parameter_name = "session"

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        db = Database.of(queryset)
        scope = access(request).scope(Role.VIEWER)
        if slug := request.GET.get(ProjectFilter.parameter_name):
            named = visible_to(Project.objects.filter(slug=slug), scope, "pk")
            scope = ProjectScope(frozenset(named.values_list("pk", flat=True)))
        try:
            session = find_session(db, scope, name, among="any").pk
        except NotFound:
            return queryset.none()
        except Conflict as error:
            raise InvalidFilter(self.title, name, error.message) from error
        return self.of_session(request, queryset, session)

    def of_session(self, request: HttpRequest, queryset: QuerySet[Any], session: UUID) -> QuerySet[Any]:
        """Return the rows of `queryset` that belong to the session."""
        return queryset.filter(session_id=session)


class WordListFilter(ChoiceFilter):
    """A filter of the REST API with few values."""

    filter_set: type[ListFilterSet]
    """The filter set of the REST API; `parameter_name` is the same there."""
    words: ClassVar[Mapping[str, Any]]
    """The labels of the values."""

    def options(self) -> Sequence[tuple[str, Any]]:
        return list(self.words.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value:
            return queryset
        if self.value not in self.words:
            raise InvalidFilter(self.title or "", self.value, one_of(self.words))
        values = {self.parameter_name: self.meaning(self.value), **self.beside(request)}
        return self.filter_set.narrow(queryset, values, self.bounds(request))

    def meaning(self, value: str) -> Any:
        return value

    def beside(self, request: HttpRequest) -> Mapping[str, Any]:
        """Return the values of other filters of the page that mean something else together with this one."""
        return {}

    def bounds(self, request: HttpRequest) -> IdRange:
        """Return the range of ids of the page, for filters on rows below."""
        return EVERY_ID


class YesNoListFilter(WordListFilter):
    """A yes/no filter of the REST API."""

    words: ClassVar[Mapping[str, Any]] = {"true": _("Yes"), "false": _("No")}

    @property
    def value(self) -> str:
        # "yes" and "no" are in older links.
        given = super().value
        return {"yes": "true", "no": "false"}.get(given, given)

    def meaning(self, value: str) -> bool:
        return value == "true"

    def api_parameters(self) -> Mapping[str, str]:
        return {self.parameter_name: self.value} if self.value else {}


class TextListFilter(NameFilter):
    """A filter of the REST API for texts, typed in and validated as there."""

    filter_set: type[ListFilterSet]
    """The filter set of the REST API; `parameter_name` is the same there."""

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        value = meaning_of(self.filter_set, self.parameter_name, name, self.title or "", mask_of(request))
        return self.filter_set.narrow(queryset, {self.parameter_name: value}, self.bounds(request))

    def bounds(self, request: HttpRequest) -> IdRange:
        """Return the range of ids of the page, for filters on rows below."""
        return EVERY_ID


class RangeListFilter(BarFilter):
    """Two filters of the REST API for the bounds of a number, both inclusive, typed in and validated as there."""

    template = "admin/range_filter.html"
    filter_set: type[ListFilterSet]
    """The filter set of the REST API; `parameter_names` are the same there."""
    input_type = "text"
    """`number` is for whole numbers: a browser refuses fractions unless it is told the step."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return self.filter_set.narrow(queryset, self.meanings())

    @property
    def contradiction(self) -> str:
        values = self.meanings()
        least, most = (values.get(name) for name in self.parameter_names[-2:])
        if least is None or most is None or least <= most:
            return ""
        return _("%(name)s: “At least” must not be above “At most”.") % {"name": capfirst(self.title)}

    def meanings(self) -> dict[str, Any]:
        """Return the given bounds as values of the REST API. Raise InvalidFilter."""
        return {
            name: meaning_of(self.filter_set, name, text, self.title or "", None) for name, text in self.given.items()
        }

    def shown_value(self) -> str:
        least, most = (self.given.get(name) for name in self.parameter_names)
        if least is None:
            return f"≤ {most}"
        return f"≥ {least}" if most is None else f"{least} – {most}"

    def choices(self, changelist: ChangeList) -> Iterator[Mapping[str, object]]:
        """Yield one dict with the context of the template."""
        name_of_least, name_of_most = self.parameter_names
        yield {
            "input_type": self.input_type,
            "name_of_least": name_of_least,
            "name_of_most": name_of_most,
            "least": self.given.get(name_of_least, ""),
            "most": self.given.get(name_of_most, ""),
            "contradiction": self.contradiction,
        }


def meaning_of(
    filter_set: type[ListFilterSet], name: str, text: str, title: str | Promise, mask: RowMask | None
) -> Any:
    """Return the value that a parameter of the REST API means. Raise InvalidFilter if it refuses `text`, or a reader with this mask may
    not ask for it."""
    filter_ = filter_set.base_filters[name]
    try:
        return clean(filter_, [text] if isinstance(filter_, NamesFilter) else text, mask)
    except ValidationError as error:
        raise InvalidFilter(title, text, str(error.messages[0])) from error


def parameters_of(list_filter: type[BarFilter]) -> Sequence[str]:
    """Return the query parameters of a filter class."""
    return list_filter.parameter_names or (list_filter.parameter_name,)


def _times(parameters: Mapping[str, str], names: Sequence[str], title: str | Promise, now: datetime) -> Times:
    """Return the narrowest bounds that the period, the lower and the upper bound of these names set. Raise InvalidFilter."""
    period, after, before = (parameters.get(name) for name in names)
    begin, end = _period_at(period, title, now) if period else (None, None)
    lower = [time for time in (begin, _instant(after, title) if after else None) if time]
    upper = [time for time in (end, _instant(before, title) if before else None) if time]
    return max(lower, default=None), min(upper, default=None)


def _period_at(name: str, title: str | Promise, now: datetime) -> Times:
    for known, _label, times_at in CreatedFilter.PERIODS:
        if known == name:
            return times_at(now)
    raise InvalidFilter(title, name, one_of(known for known, _label, _times_at in CreatedFilter.PERIODS))


def _midnight(now: datetime, days_before: int) -> datetime:
    """Return the beginning of a day of the reader."""
    day = timezone.localdate(now) - timedelta(days=days_before)
    return datetime.combine(day, time.min, timezone.get_current_timezone())


def _instant(text: str, title: str | Promise) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidFilter(title, text, ACCEPTED_TIMES) from error
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    if instant < ids.EPOCH:
        raise InvalidFilter(title, text, ACCEPTED_TIMES)
    return instant


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
