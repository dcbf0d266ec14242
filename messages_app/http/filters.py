"""What lists can be filtered by. A parameter that is misspelt, repeated or badly written is an error, never ignored.

django-filter declares the filters, and their form fields check the values. Its way from there, by a form and a QuerySet,
takes 1 to 2 ms of every request; here a filter is a condition on listing.Rows.

Times are filtered as ids: an id carries its time, so `created_after` and `created_before` are a range of the primary
key and let PostgreSQL leave out the partitions of other months.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from access_app.errors import InvalidInput
from access_app.visibility import ProjectScope
from messages_app import ids
from messages_app.models import Session
from messages_app.sql.pagination import IdRange
from messages_app.sql.row_query import Rows, sessions_that_are
from messages_app.timestamps import parse_instant

MOST_NAMES = 50


def check_parameters(
    parameters: MultiValueDict[str, Any], known: Collection[str], repeatable: Collection[str] = ()
) -> None:
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


class Filter(django_filters.Filter):
    """A parameter. With a `condition` the rows must pass it, with the value for its %s; others are read by their set."""

    schema: dict[str, Any]
    """Of the values, as the OpenAPI document says it."""

    def __init__(self, condition: str = "", *, help_text: str, **kwargs: Any) -> None:
        super().__init__(help_text=help_text, **kwargs)
        self.condition = condition


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


class TextFilter(Filter):
    """Exactly this text."""

    field_class = forms.CharField
    schema = {"type": "string"}

    def __init__(self, condition: str = "", **kwargs: Any) -> None:
        super().__init__(condition, strip=False, **kwargs)


class NameFilter(Filter):
    """The name of what the view looks for; that there is nothing of this name is for the view to say, of any text."""

    field_class = forms.Field
    schema = {"type": "string"}


class WordFilter(Filter):
    field_class = WordField

    def __init__(self, condition: str = "", *, words: Collection[str], **kwargs: Any) -> None:
        super().__init__(condition, meanings={word: word for word in words}, **kwargs)
        self.schema = {"type": "string", "enum": list(words)}


class YesNoFilter(Filter):
    field_class = WordField
    schema = {"type": "boolean"}

    def __init__(self, condition: str = "", **kwargs: Any) -> None:
        super().__init__(condition, meanings={"true": True, "false": False}, **kwargs)


class NamesFilter(Filter):
    """Any of these texts; the parameter may be repeated."""

    field_class = NamesField
    schema = {"type": "array", "items": {"type": "string"}}


class InstantFilter(Filter):
    field_class = InstantField
    schema = {"type": "string", "format": "date-time"}


class WholeNumberFilter(Filter):
    field_class = forms.IntegerField
    schema = {"type": "integer", "minimum": 0}

    def __init__(self, condition: str = "", **kwargs: Any) -> None:
        super().__init__(condition, min_value=0, **kwargs)


class SecondsFilter(Filter):
    field_class = forms.DecimalField
    schema = {"type": "number", "minimum": 0}

    def __init__(self, condition: str = "", **kwargs: Any) -> None:
        super().__init__(condition, min_value=0, max_digits=12, decimal_places=6, **kwargs)


class UuidFilter(Filter):
    field_class = forms.UUIDField
    schema = {"type": "string", "format": "uuid"}


# --- Sets of filters -------------------------------------------------------------------------------------------------


class ListFilterSet(django_filters.FilterSet):
    """The base of all lists: a time range, and strictness."""

    base_filters: dict[str, Filter]
    """All that there are, by the metaclass of django-filter."""

    created_after = InstantFilter(help_text="From this time on: `created_at >= created_after`.")
    created_before = InstantFilter(help_text="Before this time: `created_at < created_before`.")

    def __init__(self, data: QueryDict, *, page_ids: IdRange | None = None, also: Collection[str] = ()) -> None:
        """`page_ids` are the ids that the page can hold; `also` names the parameters that are read elsewhere.

        Raises InvalidInput naming the parameter that is wrong.
        """
        repeatable = {name for name, one in self.base_filters.items() if isinstance(one, NamesFilter)}
        check_parameters(data, {*self.base_filters, *also}, repeatable)
        self.said: dict[str, Any] = {}
        """The values of the parameters that were given and are not empty."""
        for name in data:
            if name in self.base_filters:
                value = _cleaned(name, self.base_filters[name], data)
                if value not in EMPTY_VALUES:
                    self.said[name] = value
        times = IdRange(
            lower=ids.first_id_at(self.said["created_after"]) if "created_after" in self.said else None,
            upper=ids.first_id_at(self.said["created_before"]) if "created_before" in self.said else None,
        )
        self.ids = times & (page_ids or IdRange())
        """The ids that can be among the rows, as far as times and the page say."""

    def passing(self, rows: Rows) -> Rows:
        """Those of the rows that pass."""
        rows = rows.within(self.ids)
        for name, value in self.said.items():
            if condition := self.base_filters[name].condition:
                rows = rows.where(condition, value)
        return rows


class SessionFilterSet(ListFilterSet):
    status = WordFilter("session.status = %s", words=Session.Status.values, help_text="How the session goes.")
    end_user = TextFilter("session.end_user = %s", help_text="Who talked to the agent.")
    tag = NamesFilter("session.tags @> %s::text[]", help_text="Has this tag; repeated: has all of them.")
    external_id = TextFilter("session.external_id = %s", help_text="The producer's id.")
    title = TextFilter(help_text="A part of the title, in any case.")
    has_errors = YesNoFilter(help_text="Has a failed call, a model error, or a run with an error.")
    deleted = YesNoFilter(help_text="true: the trash. Needs the delete scope.")

    def found(self, scope: ProjectScope) -> Rows:
        """The sessions that pass."""
        rows = self.passing(sessions_that_are(deleted=self.said.get("deleted", False)).visible_to(scope))
        if "has_errors" in self.said:
            # As the index has it; of a comparison with a parameter the planner would not see that it is that.
            rows = rows.where("session.problem_count > 0" if self.said["has_errors"] else "session.problem_count = 0")
        if "title" in self.said:
            part = re.sub(r"([%_\\])", r"\\\1", self.said["title"])
            rows = rows.where("upper(session.title) LIKE upper(%s)", f"%{part}%")
        return rows


def _cleaned(name: str, one: Filter, data: QueryDict) -> Any:
    try:
        # Fields keep nothing of what they clean: the one of the class serves all requests.
        return one.field.clean(data.getlist(name) if isinstance(one, NamesFilter) else data[name])
    except ValidationError as error:
        raise InvalidInput(str(error.messages[0]), field=name) from error
