"""The forms that make and change API keys.

Those that make one have a random value which the session remembers, because a browser that reloads the page with the token sends the
form again: the second time leads to the key instead of making another.
"""

from __future__ import annotations

import datetime as dt
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.contrib.postgres.forms import SimpleArrayField
from django.core.validators import MaxValueValidator
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .keys import LONGEST_OVERLAP_HOURS
from .models import ApiKey, Scope, check_network
from .suggestions import SuggestingInput

if TYPE_CHECKING:
    ApiKeyModelForm = forms.ModelForm[ApiKey]
else:  # not generic at run time
    ApiKeyModelForm = forms.ModelForm

SUGGESTED_DAYS: Final = (30, 90, 365)
_REMEMBERED: Final = 20
"""Forms of a session."""
_MADE: Final = "api_keys_made"


class OnceForm(forms.Form):
    """A form that makes one key, however often it is sent."""

    once = forms.CharField(
        widget=forms.HiddenInput, required=False, max_length=64, initial=partial(secrets.token_urlsafe, 16)
    )


def made_before(request: HttpRequest) -> int | None:
    """Return the primary key of the API key that the form of a request has made already."""
    made = dict(request.session.get(_MADE, ()))
    return made.get(request.POST.get("once"))


def note_made(request: HttpRequest, key: ApiKey) -> None:
    """Remember in the session that the form of a request has made a key."""
    if once := request.POST.get("once"):
        request.session[_MADE] = [*request.session.get(_MADE, ())[1 - _REMEMBERED :], (once, key.pk)]


class KeyForm(ApiKeyModelForm):
    # The field of the model says which item is wrong by its number, and not why.
    allowed_networks = SimpleArrayField(
        forms.CharField(required=False),
        widget=forms.TextInput({"class": "vTextField"}),
        label=gettext_lazy("Allowed networks"),
        required=False,
        help_text=ApiKey._meta.get_field("allowed_networks").help_text,
    )

    class Meta:
        model = ApiKey
        fields = ("name", "allowed_networks", "requests_per_minute")

    def clean_allowed_networks(self) -> list[str]:
        networks = [network for network in self.cleaned_data["allowed_networks"] if network]
        errors = []
        for network in networks:
            try:
                check_network(network)
            except forms.ValidationError as error:
                errors.append(error)
        if errors:
            raise forms.ValidationError(errors)
        return networks


class NewKeyForm(OnceForm, KeyForm):
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"),
        choices=Scope.choices,
        initial=[Scope.READ, Scope.WRITE],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("What the key may do. No scope includes another."),
    )
    expires_on = forms.DateField(
        label=gettext_lazy("Expires on"),
        required=False,
        widget=SuggestingInput({"type": "date"}),
        validators=[MaxValueValidator(dt.date(9998, 12, 31))],  # whose next day is one
        help_text=gettext_lazy("The last day on which the key works, in your time zone. Empty: it does not expire."),
    )

    class Meta:
        model = ApiKey
        # The first field has the cursor, and most people have one project.
        fields = (
            *("name", "project", "scopes", "reads_masked", "expires_on", "allowed_networks"),
            *("requests_per_minute", "once"),
        )
        help_texts: ClassVar = {
            "reads_masked": gettext_lazy(
                "The key reads what a viewer reads, by the masking rules of the project. Its only scope is read."
            )
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        today = timezone.localdate()
        widget = self.fields["expires_on"].widget
        widget.attrs["min"] = today.isoformat()
        widget.suggest = lambda: [
            (
                (today + dt.timedelta(days)).isoformat(),
                ngettext("%(count)d day", "%(count)d days", days) % {"count": days},
            )
            for days in SUGGESTED_DAYS
        ]

    @property
    def expires_at(self) -> dt.datetime | None:
        """When the last day of a valid form ends."""
        day: dt.date | None = self.cleaned_data["expires_on"]
        return None if day is None else timezone.make_aware(dt.datetime.combine(day + dt.timedelta(1), dt.time.min))

    def clean_expires_on(self) -> dt.date | None:
        day: dt.date | None = self.cleaned_data["expires_on"]
        if day is not None and day < timezone.localdate():
            raise forms.ValidationError(
                _("The key would have expired already. Choose today, %(today)s, or a later day, or leave this empty.")
                % {"today": timezone.localdate().isoformat()}
            )
        return day

    def clean(self) -> dict[str, Any] | None:
        fields = super().clean() or self.cleaned_data
        if fields.get("reads_masked") and fields.get("scopes", [Scope.READ]) != [Scope.READ]:
            self.add_error(
                "scopes",
                _(
                    "A key that reads masked values can have no other scope than read: choose read alone, or let it read all values."
                ),
            )
        return fields


class OverlapForm(OnceForm):
    hours = forms.IntegerField(
        label=gettext_lazy("Hours until the old key expires"),
        min_value=0,
        max_value=LONGEST_OVERLAP_HOURS,
        initial=24,
        help_text=gettext_lazy("Both keys work until then, so that programs can change over one after another."),
    )
