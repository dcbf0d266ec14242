"""The range of times of a page of statistics, and the links and forms that choose another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from messages_app import ids
from messages_app.admin.filters import CreatedFilter, InvalidFilter, created_ids
from messages_app.admin.keyset import KeysetAdmin
from messages_app.sql.pagination import IdRange

DEFAULT_PERIOD = "24h"


REMEMBERED = "home"
"""The key in the session of what the reader chose last on the first page: a range of times and a project."""


def chosen_times(request: HttpRequest) -> dict[str, str]:
    """Return the range of times in the address; without one that of the first page, from which readers come.

    What is chosen on another page is only in the addresses that lead on from it, so that it changes no other page.
    """
    given = {name: request.GET[name] for name in CreatedFilter.parameter_names if request.GET.get(name)}
    if given:
        return given
    try:
        return Period(request.session.get(REMEMBERED, {})).given
    except InvalidFilter:  # the first page keeps what was typed
        return {}


class Period:
    """The range of times that the parameters of a page choose, and the range before it."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Raise InvalidFilter."""
        given = {name: parameters[name] for name in CreatedFilter.parameter_names if parameters.get(name)}
        self.given = given or {"created": DEFAULT_PERIOD}
        self.ids = created_ids(self.given)
        if self.ids.lower and self.ids.upper and self.ids.lower >= self.ids.upper:
            raise InvalidFilter(CreatedFilter.title, self.given["created_before"])

    @property
    def before(self) -> IdRange | None:
        if self.ids.lower is None:
            return None
        begin = ids.created_at_of(self.ids.lower)
        end = ids.created_at_of(self.ids.upper) if self.ids.upper else timezone.now()
        return IdRange(lower=ids.first_id_at(max(begin - (end - begin), ids.EARLIEST)), upper=self.ids.lower)


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
        "last_day": f"?{urlencode({**others, 'created': DEFAULT_PERIOD})}",
        "filters": urlencode(period.given),
        "others": others,
        "projects": list(projects) if len(projects) > 1 else [],
        "project": slug if slug in projects else "",
    }


def page_of_period(
    model_admin: KeysetAdmin, request: HttpRequest, template: str, title: str, read: Callable[[Period], dict[str, Any]]
) -> HttpResponse:
    """Show a page for the range of times in the parameters; without them if these are not valid."""
    try:
        period = Period(chosen_times(request))
    except InvalidFilter:
        model_admin.message_user(request, _("This range of times is not valid."), messages.WARNING)
        return HttpResponseRedirect(request.path)
    context = {**model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.opts, **read(period)}
    return TemplateResponse(request, f"admin/traces_app/{template}.html", context)
