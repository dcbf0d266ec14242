"""The range of times of a page of statistics, and the links and forms that choose another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from messages_app.admin.filters import (
    REVERSED_TIMES,
    CreatedFilter,
    InvalidFilter,
    created_ids,
    one_of,
    remember_period,
    remembered,
)
from messages_app.admin.keyset import VALUE_CHARACTERS, KeysetAdmin
from messages_app.admin.time_zones import ENTERED_IN
from messages_app.safe_text import one_line
from messages_app.sql.pagination import IdRange
from tracesite_sdk.records import ids

DEFAULT_PERIOD = "24h"
_NAMED = 5


def chosen_times(request: HttpRequest) -> dict[str, str]:
    """Return the range of times in the address; without one that which the reader chose last on any page."""
    given = {name: request.GET[name] for name in CreatedFilter.parameter_names if request.GET.get(name)}
    if given:
        return given
    try:
        return Period(remembered(request)).given
    except InvalidFilter:  # the first page keeps what was typed
        return {}


class Period:
    """The range of times that the parameters of a page choose, and the range before it."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raise InvalidFilter."""
        given = {name: parameters[name] for name in CreatedFilter.parameter_names if parameters.get(name)}
        self.given = given or {"created": DEFAULT_PERIOD}
        self.entered = self.given
        """The text in the form as it was typed, even if it is not valid."""
        self.ids = created_ids(self.given)
        if self.ids.lower and self.ids.upper and self.ids.lower >= self.ids.upper:
            raise InvalidFilter(CreatedFilter.title, " – ".join(given.values()), REVERSED_TIMES)

    @classmethod
    def or_usual(cls, request: HttpRequest, parameters: Mapping[str, str]) -> Period:
        """Return the range of the parameters; the usual one, with a warning, if they are not valid."""
        try:
            return cls(parameters)
        except InvalidFilter as error:
            messages.warning(request, warning_of(error))
        period = cls({})
        period.entered = {name: parameters[name] for name in CreatedFilter.parameter_names if parameters.get(name)}
        return period

    @property
    def before(self) -> IdRange | None:
        if self.ids.lower is None:
            return None
        begin = ids.created_at_of(self.ids.lower)
        end = ids.created_at_of(self.ids.upper) if self.ids.upper else timezone.now()
        length = max(min(end - begin, begin - ids.EARLIEST), timedelta(0))
        return IdRange(lower=ids.first_id_at(begin - length), upper=self.ids.lower)


def warning_of(error: InvalidFilter) -> str:
    """Return the warning of a page whose range of times is not valid."""
    words = {"name": error.name, "value": one_line(error.value, VALUE_CHARACTERS), "reason": error.reason}
    return _("Invalid filter: %(name)s “%(value)s”. %(reason)s The last 24 hours are shown.") % words


def warn_of_project(request: HttpRequest, projects: Mapping[str, int]) -> None:
    """Say that the project in the address is none of `projects`, so that the page is of all."""
    slug = request.GET.get("project", "")
    if slug and slug not in projects:
        text = _("Project “%(name)s” cannot be chosen here. All projects are shown.")
        messages.warning(request, text % {"name": one_line(slug, VALUE_CHARACTERS)})


def warn_of_order(request: HttpRequest, orders: Iterable[str]) -> None:
    """Say that the order in the address is none of `orders`, so that the page has its usual one."""
    order = request.GET.get("o", "")
    known = list(orders)
    if order and order not in known:
        text = _("Invalid order “%(value)s”. %(reason)s")
        words = {"value": one_line(order, VALUE_CHARACTERS), "reason": one_of(known)}
        messages.warning(request, text % words)


def warn_of_others(request: HttpRequest, known: Collection[str]) -> None:
    """Say which parameters in the address the page does not have, so that what it shows is not limited by them."""
    # Those of Django and of ours that begin with "_" are no filters.
    unknown = [name for name in request.GET if name not in known and not name.startswith("_")]
    if unknown:
        text = _("This page has no such filter: %(names)s. It is shown without.")
        names = ", ".join(one_line(name, VALUE_CHARACTERS) for name in unknown[:_NAMED])
        messages.warning(request, text % {"names": names})


def page_filters(
    period: Period, kept: Mapping[str, str], projects: Mapping[str, int], slug: str, order: str
) -> dict[str, Any]:
    """Return the context of `tool_periods.html`; `kept` are the parameters of the page but its order."""
    others = {name: value for name, value in kept.items() if name not in CreatedFilter.parameter_names}
    if order:
        others["o"] = order
    return {
        "periods": [
            (name, label, f"?{urlencode({**others, 'created': name})}")
            for name, label, _length in CreatedFilter.PERIODS
        ],
        "chosen": period.given,
        "entered": period.entered,
        "last_day": f"?{urlencode({**others, 'created': DEFAULT_PERIOD})}",
        "filters": urlencode(period.given),
        "others": others,
        "projects": list(projects) if len(projects) > 1 else [],
        "project": slug if slug in projects else "",
    }


def page_of_period(
    model_admin: KeysetAdmin,
    request: HttpRequest,
    template: str,
    title: str,
    read: Callable[[Period], dict[str, Any]],
    others: Collection[str],
) -> HttpResponse:
    """Show a page for the range of times in the parameters; for the usual one, with a warning, if these are not valid.

    `others` are the other parameters of the page.
    """
    warn_of_others(request, {*CreatedFilter.parameter_names, ENTERED_IN, *others})
    period = Period.or_usual(request, chosen_times(request))
    remember_period(request)
    context = {**model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.opts, **read(period)}
    return TemplateResponse(request, f"admin/traces_app/{template}.html", context)
