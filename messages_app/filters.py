"""What lists can be filtered by. A parameter that is misspelt, repeated or badly written is an error, never ignored.

Times are filtered as ids: an id carries its time, so `created_after` and `created_before` are a range of the primary
key and let PostgreSQL leave out the partitions of other months.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput

from . import ids
from .instants import parse_instant
from .models import Session
from .pagination import IdRange

MOST_NAMES = 50


def check_parameters(parameters: QueryDict, known: Collection[str], repeatable: Collection[str] = ()) -> None:
    """Raises InvalidInput for a parameter that is not `known`, or is repeated and not `repeatable`."""
    for name, values in parameters.lists():
        if name not in known:
            raise InvalidInput(
                _("There is no such parameter here. There are: %(names)s.")
                % {"names": ", ".join(sorted(known)) or _("none")},
                field=Truncator(name).chars(100),
            )
        if len(values) > 1 and name not in repeatable:
            raise InvalidInput(_("Given more than once."), field=name)


# --- Kinds of filters ------------------------------------------------------------------------------------------------


class InstantField(forms.Field):
    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        try:
            return parse_instant(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class WordField(forms.Field):
    """One word of a few; the error names them. `meanings` are the values that the words stand for."""

    def __init__(self, *, meanings: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._meanings = meanings

    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        if value not in self._meanings:
            words = ", ".join(self._meanings)
            raise ValidationError(_("Not one of the words that are accepted: %(words)s.") % {"words": words})
        return self._meanings[value]


class NamesField(forms.Field):
    """A parameter that may be given several times."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[str]:
        names = [name for name in value or () if name]
        if len(names) > MOST_NAMES:
            raise ValidationError(_("Too many: at most %(most)d are accepted.") % {"most": MOST_NAMES})
        if any("\x00" in name for name in names):
            raise ValidationError(_("Null characters are not allowed."))
        return names


class TextFilter(django_filters.Filter):
    """Exactly this text."""

    field_class = forms.CharField
    schema: ClassVar[dict[str, Any]] = {"type": "string"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, strip=False, **kwargs)


class WordFilter(django_filters.Filter):
    field_class = WordField

    def __init__(self, words: Collection[str], **kwargs: Any) -> None:
        super().__init__(meanings={word: word for word in words}, **kwargs)
        self.schema: dict[str, Any] = {"type": "string", "enum": list(words)}


class YesNoFilter(django_filters.Filter):
    field_class = WordField
    schema: ClassVar[dict[str, Any]] = {"type": "boolean"}

    def __init__(self, **kwargs: Any) -> None:
        # What was not asked is None, which `filter` passes over; False is an answer.
        super().__init__(meanings={"true": True, "false": False}, **kwargs)


class NamesFilter(django_filters.Filter):
    """Any of these texts; the parameter may be repeated."""

    field_class = NamesField
    schema: ClassVar[dict[str, Any]] = {"type": "array", "items": {"type": "string"}}


class InstantFilter(django_filters.Filter):
    field_class = InstantField
    schema: ClassVar[dict[str, Any]] = {"type": "string", "format": "date-time"}


class WholeNumberFilter(django_filters.Filter):
    field_class = forms.IntegerField
    schema: ClassVar[dict[str, Any]] = {"type": "integer", "minimum": 0}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=0, **kwargs)


class SecondsFilter(django_filters.Filter):
    field_class = forms.DecimalField
    schema: ClassVar[dict[str, Any]] = {"type": "number", "minimum": 0}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=0, max_digits=12, decimal_places=6, **kwargs)


class UuidFilter(django_filters.Filter):
    field_class = forms.UUIDField
    schema: ClassVar[dict[str, Any]] = {"type": "string", "format": "uuid"}


# --- Sets of filters -------------------------------------------------------------------------------------------------


class ListFilterSet(django_filters.FilterSet):
    """The base of all lists: a time range, and strictness."""

    base_filters: dict[str, Any]
    """All that there are, by the metaclass of django-filter."""

    created_after = InstantFilter(method="pass_over", help_text="From this time on: `created_at >= created_after`.")
    created_before = InstantFilter(method="pass_over", help_text="Before this time: `created_at < created_before`.")

    def __init__(
        self, data: QueryDict, queryset: QuerySet[Any], *, page_ids: IdRange | None = None, also: Collection[str] = ()
    ) -> None:
        """`page_ids` are the ids that the page can hold; `also` names the parameters that are read elsewhere."""
        # Of this instance only those that are used: to copy and validate all of them takes 1 ms of each request.
        self.base_filters = {name: one for name, one in type(self).base_filters.items() if name in data}
        super().__init__(data, queryset)
        self._page_ids = page_ids or IdRange()
        self._also = also

    def checked(self) -> QuerySet[Any]:
        """The rows that pass. Raises InvalidInput naming the parameter that is wrong."""
        there_are = type(self).base_filters
        repeatable = {name for name, one in there_are.items() if isinstance(one, NamesFilter)}
        check_parameters(self.data, {*there_are, *self._also}, repeatable)
        for name, errors in self.errors.items():
            raise InvalidInput(str(errors[0]), field=name)
        rows: QuerySet[Any] = self.qs
        return rows

    @property
    def ids(self) -> IdRange:
        """The ids that can be among the rows, as far as times and the page say."""
        after, before = (self.form.cleaned_data.get(name) for name in ("created_after", "created_before"))
        times = IdRange(
            lower=None if after is None else ids.first_id_at(after),
            upper=None if before is None else ids.first_id_at(before),
        )
        return times & self._page_ids

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().filter_queryset(queryset.filter(**self.ids.of("pk")))
        return rows

    def pass_over(self, queryset: QuerySet[Any], _name: str, _value: Any) -> QuerySet[Any]:
        """For filters that act through `ids`, or through the choice of the rows that are filtered."""
        return queryset


class SessionFilterSet(ListFilterSet):
    status = WordFilter(Session.Status.values, help_text="How the session goes.")
    end_user = TextFilter(help_text="Who talked to the agent.")
    tag = NamesFilter(method="with_tags", help_text="Has this tag; repeated: has all of them.")
    external_id = TextFilter(help_text="The producer's id.")
    title = TextFilter(lookup_expr="icontains", help_text="A part of the title, in any case.")
    has_errors = YesNoFilter(method="with_errors", help_text="Has failed calls.")
    deleted = YesNoFilter(method="pass_over", help_text="true: the trash. Needs the delete scope.")

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        deleted = bool(self.form.cleaned_data.get("deleted"))
        return super().filter_queryset(queryset.filter(deleted_at__isnull=not deleted))

    def with_tags(self, queryset: QuerySet[Session], _name: str, value: list[str]) -> QuerySet[Session]:
        return queryset.filter(tags__contains=value)

    def with_errors(self, queryset: QuerySet[Session], _name: str, value: bool) -> QuerySet[Session]:
        return queryset.filter(failure_count__gt=0) if value else queryset.filter(failure_count=0)
