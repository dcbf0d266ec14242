"""Filters of lists: declared with django-filter, validated by form fields, applied to QuerySets.

A misspelled, repeated or malformed parameter is an error, never ignored. The filters of the admin call the same filter sets.

Times are filtered as ids: an id carries its time, so `created_after` and `created_before` become a range of the primary key
and let PostgreSQL skip the partitions of other months.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.db.models import BigIntegerField, QuerySet
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.masked_reading import RowMask
from access_app.visibility import ProjectScope
from messages_app.http.schemas import A_DATE_IS_MIDNIGHT, INSTANT_OR_DATE
from messages_app.models import HAS_ERRORS, HAS_PROBLEMS, Message, Session
from messages_app.sql.pagination import EVERY_ID, IdRange, ListRows
from messages_app.timestamps import parse_limit
from tracesite_sdk.records import ids

MOST_NAMES = 50
_HIDDEN = gettext_lazy("Your role reads this value masked, so it cannot be searched for.")
AT_LEAST = "Milliseconds, inclusive."
COST = "USD, inclusive; rows whose cost is unknown are left out."

Rows = TypeVar("Rows", bound=QuerySet[Any, Any])


_LISTS = ("fields", "expand", "keys", "refs")
"""Parameters whose values are separated by commas. They may be repeated instead, as clients of some generators do."""


def check_parameters(
    parameters: MultiValueDict[str, Any], known: Collection[str], repeatable: Collection[str] = ()
) -> None:
    """Raise InvalidInput for a parameter that is not `known`, or is repeated and not `repeatable`."""
    for name, values in parameters.lists():
        if name not in known:
            words = {"names": ", ".join(sorted(known)) or _("none")}
            text = _("Unknown parameter. Allowed: %(names)s.") % words
            if near := get_close_matches(name[:100], known, n=1):
                text = _("Unknown parameter. Did you mean %(near)s? Allowed: %(names)s.") % {**words, "near": near[0]}
            raise InvalidInput(text, field=Truncator(name).chars(100))
        if len(values) > 1 and name not in repeatable and name not in _LISTS:
            raise InvalidInput(_("This parameter may be given only once."), field=name)


# --- Kinds of filters ------------------------------------------------------------------------------------------------


class Filter(django_filters.Filter):
    """A parameter of a list."""

    schema: dict[str, Any]
    """The schema of its values, for the OpenAPI document."""
    is_written: ClassVar[bool] = False
    """Whether agents or people wrote the texts, so that a reader cannot ask for one that it reads masked."""
    needs_whole_text: ClassVar[bool] = False
    """Whether only readers who see all of the text may ask."""

    def __init__(
        self, field_name: str | None = None, lookup_expr: str = "exact", *, help_text: str, **kwargs: Any
    ) -> None:
        super().__init__(field_name, lookup_expr, help_text=help_text, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Filter:
        # A shallow copy suffices: django-filter copies all filters for each request, but sets only `parent` and `model`.
        filter_ = type(self).__new__(type(self))
        filter_.__dict__.update(self.__dict__)
        return filter_


class InstantField(forms.Field):
    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        try:
            return parse_limit(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class WordField(forms.Field):
    """One of a few words, which its error lists. `meanings` maps them to values."""

    def __init__(self, *, meanings: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._meanings = meanings

    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        if value not in self._meanings:
            words = ", ".join(self._meanings)
            raise ValidationError(_("Invalid value. Allowed: %(words)s.") % {"words": words})
        return self._meanings[value]


class NamesField(forms.Field):
    """A parameter that may be repeated."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[str]:
        names = [name for name in value or () if name]
        if len(names) > MOST_NAMES:
            raise ValidationError(_("Too many values: at most %(most)d are allowed.") % {"most": MOST_NAMES})
        if any("\x00" in name for name in names):
            raise ValidationError(_("Null characters are not allowed."))
        return names


class TextFilter(Filter):
    field_class = forms.CharField
    schema = {"type": "string"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, strip=False, **kwargs)


class WrittenFilter(TextFilter):
    """A text that agents or people wrote."""

    is_written = True


class SeenTextFilter(TextFilter):
    """A part of a text, for readers who see all of it: others could guess what is masked letter by letter."""

    needs_whole_text = True


class NameFilter(Filter):
    """The name of another resource, which the view looks up; the response to an unknown one is 404."""

    field_class = forms.Field
    schema = {"type": "string"}


class WordFilter(Filter):
    field_class = WordField

    def __init__(self, *args: Any, words: Collection[str], **kwargs: Any) -> None:
        super().__init__(*args, meanings={word: word for word in words}, **kwargs)
        self.schema = {"type": "string", "enum": list(words)}


class YesNoFilter(Filter):
    field_class = WordField
    schema = {"type": "boolean"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, meanings={"true": True, "false": False}, **kwargs)


class NamesFilter(Filter):
    """Several texts; the parameter may be repeated."""

    is_written = True
    field_class = NamesField
    schema = {"type": "array", "items": {"type": "string"}}


class KeysFilter(NamesFilter):
    """Names that `found` of the filter set replaces by the ids of their rows."""

    def filter(self, qs: Rows, value: Sequence[int]) -> Rows:
        # Names without an id have no rows: django-filter itself would ignore an empty list.
        return qs.filter(**{f"{self.field_name}__in": value})


class InstantFilter(Filter):
    """A time with a zone, or a date, which means 00:00 UTC."""

    field_class = InstantField
    schema = INSTANT_OR_DATE

    def __init__(self, *args: Any, help_text: str, **kwargs: Any) -> None:
        super().__init__(*args, help_text=f"{help_text} {A_DATE_IS_MIDNIGHT}", **kwargs)


class WholeNumberField(forms.IntegerField):
    def to_python(self, value: Any) -> int | None:
        number = super().to_python(value)
        # Limited to the range of the columns.
        return None if number is None else min(number, BigIntegerField.MAX_BIGINT)


class WholeNumberFilter(Filter):
    field_class = WholeNumberField
    schema = {"type": "integer", "minimum": 0}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, min_value=0, **kwargs)


class SecondsFilter(Filter):
    field_class = forms.DecimalField
    schema = {"type": "number", "minimum": 0}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, min_value=0, max_digits=12, decimal_places=6, **kwargs)


class NumberFilter(Filter):
    """Any finite number."""

    field_class = forms.FloatField
    schema = {"type": "number"}


class CostFilter(Filter):
    field_class = forms.DecimalField
    schema = {"type": "number", "minimum": 0}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, min_value=0, max_digits=20, decimal_places=10, **kwargs)


class UuidFilter(Filter):
    field_class = forms.UUIDField
    schema = {"type": "string", "format": "uuid"}


def with_errors(rows: Rows, _name: str, value: bool) -> Rows:
    """Filter messages for HAS_ERRORS, or for the opposite."""
    return rows.filter(HAS_ERRORS) if value else rows.exclude(HAS_ERRORS)


def with_problems(rows: Rows, _name: str, value: bool) -> Rows:
    """Filter sessions for HAS_PROBLEMS, or for the opposite."""
    return rows.filter(HAS_PROBLEMS) if value else rows.exclude(HAS_PROBLEMS)


# --- Sets of filters -------------------------------------------------------------------------------------------------


class ListFilterSet(django_filters.FilterSet):
    """The base of all filter sets: a range of times, and strict parameters."""

    base_filters: dict[str, Filter]
    """All filters, collected by the metaclass of django-filter."""
    read_elsewhere: ClassVar[Collection[str]] = ("created_after", "created_before", "session", "deleted")
    """Parameters that choose the QuerySet instead of narrowing it."""
    rows: ClassVar[QuerySet[Any, Any]]
    """The default QuerySet for `.qs`."""

    created_after = InstantFilter(help_text="From this time (inclusive): `created_at >= created_after`.")
    created_before = InstantFilter(help_text="Before this time (exclusive): `created_at < created_before`.")

    def __init__(
        self,
        data: QueryDict,
        queryset: QuerySet[Any, Any] | None = None,
        *,
        mask: RowMask | None,
        also: Collection[str] = (),
    ) -> None:
        """Validate the parameters in `data`; `mask` is that of the reader, and `also` names those that other code reads.

        Raise InvalidInput with the name of the parameter.
        """
        super().__init__(data, self.rows if queryset is None else queryset)
        repeatable = {name for name, filter_ in self.base_filters.items() if isinstance(filter_, NamesFilter)}
        check_parameters(data, {*self.base_filters, *also}, repeatable)
        self.given: dict[str, Any] = {}
        """The values of the given parameters that are not empty."""
        for name in data:
            if name in self.base_filters:
                value = _cleaned(name, self.base_filters[name], data, mask)
                if value not in EMPTY_VALUES:
                    self.given[name] = value
        self.ids = IdRange(
            lower=ids.first_id_at(self.given["created_after"]) if "created_after" in self.given else None,
            upper=ids.first_id_at(self.given["created_before"]) if "created_before" in self.given else None,
        )
        """The range of ids for the times."""

    @classmethod
    def narrow(cls, rows: Rows, values: Mapping[str, Any], ids: IdRange = EVERY_ID) -> Rows:
        """Filter `rows` by the values of parameters. Rows below are searched only in the months of `ids`, the range of the page."""
        for name, value in values.items():
            rows = cls.base_filters[name].filter(rows, value)
        return rows

    @property
    def narrowing(self) -> dict[str, Any]:
        """The values of the given parameters that narrow a list."""
        return {name: value for name, value in self.given.items() if name not in self.read_elsewhere}

    def list_rows(self, db: Database, find: Callable[[IdRange], QuerySet[Any, Any]], scope: ProjectScope) -> ListRows:
        """Return the rows that `find` finds for a page, see ListRows, within the range of times."""
        return ListRows(db=db, find=find, ids=self.ids, project_id=scope.only_project)

    def filter_queryset(self, queryset: Rows) -> Rows:
        """Filter by the parameters that narrow a list; django-filter calls it for `.qs`."""
        return self.narrow(queryset, self.narrowing).filter(**self.ids.of("pk"))


class SessionFilterSet(ListFilterSet):
    status = WordFilter(words=Session.Status.values, help_text="The state of the session.")
    end_user = TextFilter(help_text="The user of the agent.")
    tag = NamesFilter("tags", "contains", help_text="Sessions with this tag; repeated: with all of them.")
    external_id = TextFilter(help_text="The producer's id.")
    title = SeenTextFilter(lookup_expr="icontains", help_text="Part of the title, case-insensitive.")
    has_errors = YesNoFilter(
        method=with_problems,
        help_text="true: with a failed call, a model error, or a run with an error; false: without.",
    )
    min_duration = WholeNumberFilter("duration_ms", "gte", help_text=f"{AT_LEAST} The sum of its messages.")
    max_duration = WholeNumberFilter("duration_ms", "lte", help_text=f"{AT_LEAST} The sum of its messages.")
    min_cost = CostFilter("cost", "gte", help_text=COST)
    max_cost = CostFilter("cost", "lte", help_text=COST)
    active_after = InstantFilter("active_at", "gte", help_text="Last active from this time on (inclusive).")
    active_before = InstantFilter("active_at", "lt", help_text="Last active before this time (exclusive).")
    deleted = YesNoFilter(help_text="true: sessions in the trash. Requires the scope `delete`.")

    rows = Session.objects.all()


class MessageFilterSet(ListFilterSet):
    role = WordFilter(words=Message.Role.values, help_text="The role of the message.")
    session = NameFilter(help_text="Id or external id of the session. 404 if it does not exist.")
    tag = NamesFilter("session__tags", "contains", help_text="Of sessions with this tag; repeated: with all of them.")
    end_user = TextFilter("session__end_user", help_text="Of sessions of this user of the agent.")
    request_id = TextFilter(help_text="The application request of the message.")
    external_id = TextFilter(help_text="The producer's id.")
    is_completed = YesNoFilter(help_text="false: answers in progress.")
    has_errors = YesNoFilter(
        method=with_errors,
        help_text="true: with a failed call, a model error, or an error of the message; false: without.",
    )
    min_duration = WholeNumberFilter("duration_ms", "gte", help_text=AT_LEAST)
    max_duration = WholeNumberFilter("duration_ms", "lte", help_text=AT_LEAST)
    min_cost = CostFilter("cost", "gte", help_text=COST)
    max_cost = CostFilter("cost", "lte", help_text=COST)
    deleted = YesNoFilter(
        help_text=(
            "true: messages in the trash, including those deleted with their session. Requires the scope `delete`."
        )
    )

    rows = Message.objects.all()


def clean(filter_: Filter, value: Any, mask: RowMask | None) -> Any:
    """Return the value of a parameter. Raise ValidationError, also if a reader with this mask may not ask for it."""
    # The field of the class serves all requests, because form fields have no state.
    cleaned = filter_.field.clean(value)
    if mask is None or cleaned in EMPTY_VALUES:
        return cleaned
    if filter_.needs_whole_text:
        raise ValidationError(
            _("Your role reads masked values, so it cannot search in titles this way. Use the search (q).")
        )
    if filter_.is_written and any(map(mask.hides, [cleaned] if isinstance(cleaned, str) else cleaned)):
        raise ValidationError(_HIDDEN)
    return cleaned


def _cleaned(name: str, filter_: Filter, data: QueryDict, mask: RowMask | None) -> Any:
    try:
        return clean(filter_, data.getlist(name) if isinstance(filter_, NamesFilter) else data[name], mask)
    except ValidationError as error:
        raise InvalidInput(str(error.messages[0]), field=name) from error
