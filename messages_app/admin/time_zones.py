"""The time zone in which a reader sees and enters times: chosen on a page of its own, kept in a cookie like the language.

Addresses are in UTC whatever the zone, so that a link and a saved view mean the same to everybody: a form for times sends
its zone as ENTERED_IN, and `in_utc` redirects it to the address in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise, lazy
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

COOKIE = "tracesite_time_zone"
ENTERED_IN = "entered_in"
"""The parameter with the zone of a form's times."""
_YEAR = 365 * 24 * 3600
# Not zones but files of some systems, and a placeholder.
_NOT_ZONES = {"Factory", "localtime", "posixrules"}


@cache
def zone_names() -> tuple[str, ...]:
    """Return the names of the IANA zones that this system knows, sorted."""
    return tuple(sorted({"UTC", *available_timezones()} - _NOT_ZONES))


def zone_named(name: str) -> tzinfo | None:
    """Return the zone of this name; None if there is none."""
    # ZoneInfo reads a file of this name.
    if name == "UTC":
        return UTC
    return ZoneInfo(name) if name in zone_names() else None


def zone_of(request: HttpRequest) -> tzinfo:
    """Return the zone that the reader chose; UTC without a choice."""
    return zone_named(request.COOKIES.get(COOKIE, "")) or UTC


def _with_zone(label: str | Promise) -> str:
    return _("%(label)s (%(zone)s)") % {"label": label, "zone": timezone.get_current_timezone_name()}


with_zone = lazy(_with_zone, str)
"""Return the name of a column or field of times with the reader's zone, lazily: "started (Asia/Shanghai)"."""


def entered(text: str, zone: tzinfo) -> datetime:
    """Return the time that somebody in `zone` entered. Raise ValidationError if there is no such time, or two."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValidationError(_("Expected a time such as 2026-01-31T09:30.")) from error
    if time.tzinfo is not None:
        return time
    first, second = (time.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    words = {"time": f"{time:%Y-%m-%d %H:%M:%S}", "zone": zone}
    # Of two offsets, the first one is the larger one if clocks were put back.
    if (first.utcoffset() or UTC.utcoffset(None)) > (second.utcoffset() or UTC.utcoffset(None)):
        raise ValidationError(
            _("%(time)s occurs twice in %(zone)s, because clocks go back. Enter a time before or after that hour.")
            % words
        )
    raise ValidationError(
        _("%(time)s does not exist in %(zone)s, because clocks go forward. Enter a time before or after that hour.")
        % words
    )


def entry_of(text: str) -> str:
    """Return a time of an address (without offset: UTC) as `datetime-local` inputs take it, in the reader's zone."""
    try:
        time = datetime.fromisoformat(text)
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return f"{timezone.localtime(aware):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError):
        return text


def in_utc(request: HttpRequest) -> HttpResponseRedirect | None:
    """Redirect a request with times entered in a zone to the same with times in UTC; None for others.

    A time that is none is left out, with a message that says why.
    """
    zone = zone_named(request.GET.get(ENTERED_IN, "")) if request.method == "GET" else None
    if zone is None:
        return None
    parameters = request.GET.copy()
    del parameters[ENTERED_IN]
    for name, text in request.GET.items():
        if not text or not name.endswith(("_after", "_before")):
            continue
        try:
            time = entered(str(text), zone).astimezone(UTC)
        except (ValidationError, OverflowError) as error:
            reasons = error.messages if isinstance(error, ValidationError) else [_("This date or time does not exist.")]
            messages.error(request, " ".join(reasons))
            del parameters[name]
        else:
            parameters[name] = f"{time:%Y-%m-%dT%H:%M:%SZ}"
    return HttpResponseRedirect(f"{request.path}?{parameters.urlencode()}")


class TimeZoneForm(forms.Form):
    zone = forms.CharField(max_length=64)

    def clean_zone(self) -> str:
        name: str = self.cleaned_data["zone"]
        if zone_named(name) is None:
            raise ValidationError(_("Unknown time zone. Expected an IANA name such as Asia/Shanghai, or UTC."))
        return name


def choose_time_zone(request: HttpRequest) -> HttpResponse:
    """Show the page on which a reader chooses a zone, or keep the choice and return to the page before."""
    following = request.POST.get("next") or request.GET.get("next") or ""
    if not url_has_allowed_host_and_scheme(following, {request.get_host()}, require_https=request.is_secure()):
        following = reverse("admin:index")
    form = TimeZoneForm(request.POST or None)
    if form.is_valid():
        zone = form.cleaned_data["zone"]
        messages.success(request, _("Times are shown in the zone %(zone)s from now on.") % {"zone": zone})
        response = HttpResponseRedirect(following)
        response.set_cookie(COOKIE, zone, max_age=_YEAR, secure=request.is_secure(), httponly=True, samesite="Lax")
        return response
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": _("Time zone"),
        "form": form,
        "next": following,
        "zone_names": zone_names(),
        "now": timezone.now(),
    }
    return render(request, "admin/time_zone.html", context)
