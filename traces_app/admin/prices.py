"""The admin of prices of models."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db.models import Case, Count, Q, QuerySet, When
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.audit.changes import note_changes
from access_app.audit.trail import actor_of
from access_app.db import Database
from access_app.program import program
from access_app.readable_pages import each_that_answers
from messages_app.safe_text import ago, price
from traces_app.ingest.prices import forget_prices, read_prices
from traces_app.models import AgentStep, ModelPrice
from tracesite_sdk.records import ids

if TYPE_CHECKING:
    PriceModelAdmin = admin.ModelAdmin[ModelPrice]
    PriceModelForm = forms.ModelForm[ModelPrice]
else:
    PriceModelAdmin, PriceModelForm = admin.ModelAdmin, forms.ModelForm  # not generic at run time


REQUESTS_READ = 2_000
"""Requests of each database that tell which models are in use: more would take longer than the rest of the list."""


class PriceForm(PriceModelForm):
    """A price that contradicts no other one: of each day it is clear which of them counts."""

    class Meta:
        model = ModelPrice
        fields = "__all__"  # the admin lists them
        widgets: ClassVar[Any] = {
            "model": forms.TextInput(attrs={"class": "vTextField", "maxlength": 512}),
            "source": forms.Textarea(attrs={"class": "vLargeTextField", "rows": 2}),
        }
        help_texts: ClassVar[Any] = {"valid_from": gettext_lazy("The first day, UTC. Empty: always, in the past, too.")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("input", "cached_input", "cache_write", "output", "reasoning"):
            # Of a stored price, or of the address that leads to a new one.
            if isinstance(amount := self.initial.get(name), Decimal | str) and "." in str(amount):
                self.initial[name] = str(amount).rstrip("0").rstrip(".")  # 0.2, not 0.200000

    def clean(self) -> dict[str, Any] | None:
        values = super().clean()
        if self.errors or values is None:
            return values
        wanted = ModelPrice(
            **{name: values[name] for name in ("project", "valid_from", "valid_until")},
            model=values["model"].strip().lower(),
        )
        others = ModelPrice.objects.filter(model=wanted.model, project=wanted.project).exclude(pk=self.instance.pk)
        for other in others:
            if other.valid_from == wanted.valid_from:
                self.add_error(
                    "valid_from",
                    _("There is already a price of this model (%(days)s) with this first day.")
                    % {"days": _days(other)},
                )
            elif wanted.overlaps(other):
                later = max(wanted, other, key=ModelPrice.first_day)
                self.add_error(
                    "valid_from" if later is wanted else "valid_until",
                    _(
                        "Overlaps the price %(days)s of the same model. Let one of them end before the other begins, or leave the last day of the earlier one empty."
                    )
                    % {"days": _days(other)},
                )
        return values


def _amount(name: str, label: Promise) -> Callable[[ModelPrice], str]:
    """Return the column of an amount of prices. All have the same class in HTML, that of the function."""

    @admin.display(description=format_lazy("{} / 1M", label), ordering=name, empty_value="")
    def amount(row: ModelPrice) -> str:
        return price(getattr(row, name))

    return amount


class PriceList(ChangeList):
    """The list of prices: those first that the newest requests used."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.last_uses = _last_uses(request)
        return super().get_queryset(request, exclude_parameters)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        ordering = super().get_ordering(request, queryset)
        if ORDER_VAR in self.params or not self.last_uses:
            return ordering
        return [Case(When(pk__in=list(self.last_uses), then=0), default=1), *ordering]

    def get_ordering_field_columns(self) -> dict[int, Literal["desc", "asc"]]:
        """Return the columns that are marked as those of the order: only those that a reader chose."""
        return super().get_ordering_field_columns() if ORDER_VAR in self.params else {}

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        for row in self.result_list:
            row.last_use = self.last_uses.get(row.pk)


def _last_uses(request: HttpRequest) -> dict[int, datetime]:
    """Return when each price was last used, by its primary key; of those that the newest REQUESTS_READ requests of each database used."""
    newest: dict[tuple[int, str], datetime] = {}
    for models in each_that_answers(request, _newest_models).values():
        newest |= models
    prices = read_prices()
    uses: dict[tuple[int | None, str, date | None], datetime] = {}
    for (project_id, model), at in newest.items():
        found = prices.find(project_id, model, at.astimezone(UTC).date())
        if found is not None:
            key = (found.project_id, found.model, found.valid_from)
            uses[key] = max(at, uses.get(key, at))
    rows = ModelPrice.objects.values_list("pk", "project_id", "model", "valid_from")
    found_rows = {pk: uses.get((project_id, model, first_day)) for pk, project_id, model, first_day in rows}
    return {pk: at for pk, at in found_rows.items() if at is not None}


def _newest_models(db: Database) -> dict[tuple[int, str], datetime]:
    """Return when each model was last used in each project, by the newest requests."""
    requests = db.rows(AgentStep.with_deleted).order_by("-pk").values_list("project_id", "model", "pk")
    newest: dict[tuple[int, str], UUID] = {}
    for project_id, model, key in requests[:REQUESTS_READ]:
        newest.setdefault((project_id, model), key)
    return {used: ids.created_at_of(key) for used, key in newest.items()}


@admin.register(ModelPrice)
class ModelPriceAdmin(PriceModelAdmin):
    """Prices count at the next write of this process, and after a minute in others."""

    form = PriceForm
    list_display = (
        "model",
        "last_used",
        "project",
        _amount("input", gettext_lazy("input")),
        _amount("cached_input", gettext_lazy("cached input")),
        _amount("cache_write", gettext_lazy("cache write")),
        _amount("output", gettext_lazy("output")),
        _amount("reasoning", gettext_lazy("reasoning")),
        "days",
        "as_of",
    )
    empty_value_display = gettext_lazy("All projects")
    """Of the project, in the list and in its filter. No other column is empty without a text of its own."""
    list_select_related = ("project",)
    search_fields = ("model",)
    search_help_text = gettext_lazy(
        "Search by model. Prices are in USD for a million tokens (1M). Those that the newest runs used come first."
    )
    list_filter: ClassVar[Any] = ("project",)
    fieldsets: ClassVar[Any] = (
        (
            None,
            {
                "fields": ("model", "project", "valid_from", "valid_until"),
                "description": gettext_lazy(
                    "A price without a last day ends where the next one of the model begins. If a price changes, add a new one from "
                    "that day on, so that earlier runs keep theirs."
                ),
            },
        ),
        (
            gettext_lazy("USD for a million tokens"),
            {
                "fields": ("input", "cached_input", "cache_write", "output", "reasoning"),
                "description": gettext_lazy(
                    "Without a price of their own, cached input and cache writes cost the same as input, and reasoning the "
                    "same as output."
                ),
            },
        ),
        (gettext_lazy("Source"), {"fields": ("as_of", "source")}),
    )

    # A price may be that of a project, and only superusers see all projects.

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_view_permission(self, request: HttpRequest, obj: ModelPrice | None = None) -> bool:
        return request.user.is_superuser

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: ModelPrice | None = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: ModelPrice | None = None) -> bool:
        return request.user.is_superuser

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"as_of": timezone.now().date(), **super().get_changeform_initial_data(request)}

    def save_model(self, request: HttpRequest, obj: ModelPrice, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        note_changes(actor_of(request), obj, form)
        self._changed(request, obj)

    def delete_model(self, request: HttpRequest, obj: ModelPrice) -> None:
        super().delete_model(request, obj)
        self._changed(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ModelPrice]) -> None:
        super().delete_queryset(request, queryset)
        self._changed(request, None)

    def _changed(self, request: HttpRequest, price: ModelPrice | None) -> None:
        """Use the prices from now on, and say that stored costs do not follow them."""
        forget_prices()
        command = f"{program()} recompute_costs"
        if price is not None:
            command += f" --model {shlex.quote(price.model)}"
        text = _(
            "New runs use this from now on. Stored runs keep their costs, until whoever operates the server computes these anew with the command: %(command)s"
        )
        messages.info(request, text % {"command": command})

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns in which prices differ."""
        differ = ModelPrice.objects.aggregate(
            project=Count("project"),
            cached_input=Count("cached_input"),
            cache_write=Count("cache_write"),
            reasoning=Count("reasoning"),
            days=Count("pk", filter=~Q(valid_from=None, valid_until=None)),
        )
        return [one for one in self.list_display if differ.get(str(getattr(one, "admin_order_field", one)), 1)]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PriceList

    @admin.display(description=gettext_lazy("last used"), empty_value="")
    def last_used(self, row: ModelPrice) -> SafeString | None:
        last_use: datetime | None = row.last_use  # type: ignore[attr-defined]  # of PriceList
        return None if last_use is None else ago(last_use)

    @admin.display(description=gettext_lazy("valid (UTC)"), ordering="valid_from")
    def days(self, row: ModelPrice) -> str:
        return _days(row)


def _days(price: ModelPrice) -> str:
    """Return the days on which a price is valid, for people."""
    days = {"first": price.valid_from, "last": price.valid_until}
    if price.valid_from is None:
        return _("always") if price.valid_until is None else _("until %(last)s") % days
    return _("from %(first)s") % days if price.valid_until is None else _("%(first)s to %(last)s") % days
