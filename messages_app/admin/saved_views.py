"""Saved views of the admin's lists: filters and a search under a name, one's own and those that others share.

A view is only a link to its list, so it shows what the filters find now, and to each reader what they may see.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote_plus, urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin.views.main import ERROR_FLAG, SEARCH_VAR
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _

from access_app.admin_roles import Page
from access_app.db import primary
from access_app.people import with_people
from access_app.roles import access, people_of
from messages_app.models import SavedView

from .filters import CURSOR, BarFilter

if TYPE_CHECKING:
    from .keyset import KeysetAdmin

    SavedViewModelForm = forms.ModelForm[SavedView]
else:
    SavedViewModelForm = forms.ModelForm  # not generic at run time

VIEWS_SHOWN = 100
"""Views above a list; also the most that somebody may save for it."""
_MOST_READ = 1_000
"""Views of a list that are read, those of others among them."""


def query_of(parameters: QueryDict, said_by_title: Collection[str] = ()) -> str:
    """Return the query string of a list without its place, empty filters and repetitions, sorted; "" for the whole list.

    A list is whole, too, if its title says all its parameters.
    """
    given = {name: value for name, value in parameters.items() if value and name not in (CURSOR, ERROR_FLAG)}
    return urlencode(sorted(given.items())) if given.keys() - said_by_title else ""


def views_of(list_name: str, request: HttpRequest) -> list[SavedView]:
    """Return the views of a list that a login may see, by name: its own, and those that people share with whom it has a project in
    common, without those that say what it reads masked. One query, three if others share views."""
    user = request.user
    visible = SavedView.objects.filter(Q(owner=user.pk) | Q(shared=True), list_name=list_name)
    views = list(with_people(visible, "owner").order_by("name", "pk")[:_MOST_READ])
    if all(view.owner_id == user.pk for view in views):
        return views
    known, mask = people_of(access(request)), primary.connection.mask
    return [
        view
        for view in views
        if view.owner_id == user.pk
        or (
            (known is None or view.owner_id in known)
            and not (mask and mask.hides(f"{view.name} {unquote_plus(view.query)}"))
        )
    ]


class SavedViewForm(SavedViewModelForm):
    """Saves the filters of a list under a name; a view of this name and owner gets the new filters."""

    class Meta:
        model = SavedView
        fields = ("name", "query", "shared")
        widgets: ClassVar[Any] = {"query": forms.HiddenInput}

    def clean_query(self) -> str:
        query = query_of(QueryDict(self.cleaned_data["query"]))
        if not query:
            raise ValidationError(_("Filter or search the list before you save a view of it."))
        return query

    def clean(self) -> dict[str, Any]:
        of_owner = SavedView.objects.filter(owner_id=self.instance.owner_id, list_name=self.instance.list_name)
        others = of_owner.exclude(name=self.cleaned_data.get("name"))
        if others.count() >= VIEWS_SHOWN:
            raise ValidationError(_("You have %(most)d views of this list. Delete one first.") % {"most": VIEWS_SHOWN})
        return self.cleaned_data

    def save(self, commit: bool = True) -> SavedView:
        fields = {"query": self.cleaned_data["query"], "shared": self.cleaned_data["shared"]}
        view, _created = SavedView.objects.update_or_create(
            owner_id=self.instance.owner_id,
            list_name=self.instance.list_name,
            name=self.cleaned_data["name"],
            defaults=fields,
        )
        return view


class ChangedViewForm(SavedViewModelForm):
    """Renames a view, and shares it or not."""

    class Meta:
        model = SavedView
        fields = ("name", "shared")

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        view = self.instance
        same = SavedView.objects.filter(owner_id=view.owner_id, list_name=view.list_name, name=name)
        if same.exclude(pk=view.pk).exists():
            raise ValidationError(_("You have a view with this name."))
        return name


class SavedViews:
    """The saved views of a list: above it, and the pages that save and change them."""

    def urls(self, model_admin: KeysetAdmin) -> list[URLPattern]:
        pages = (Page("views/", self.save, "save_view"), Page("views/<int:key>/", self.change, "saved_view"))
        return [page.url(model_admin) for page in pages]

    def context(self, model_admin: KeysetAdmin, request: HttpRequest) -> dict[str, Any]:
        return {
            "saved_views": views_of(model_admin.list_name(request.GET), request)[:VIEWS_SHOWN],
            "current_query": query_of(request.GET, model_admin.said_by_title(request.GET)),
        }

    def save(self, model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
        """Save the filters of the list as a view of the user, and return to the list."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        assert request.user.is_authenticated, "the admin lets nobody else in"
        query = QueryDict(request.POST.get("query", ""))
        view = SavedView(owner_id=request.user.pk, list_name=model_admin.list_name(query))
        form = SavedViewForm(request.POST, instance=view)
        if form.is_valid():
            self._say_saved(model_admin, request, form.save())
        else:
            model_admin.message_user(request, " ".join(errors_of(form)), messages.ERROR)
        return HttpResponseRedirect(model_admin.list_url(query_of(query)))

    def change(self, model_admin: KeysetAdmin, request: HttpRequest, key: int) -> HttpResponse:
        """Rename, share or delete a view, the latter once that is confirmed: its owner only."""
        list_name = SavedView.objects.filter(pk=key).values_list("list_name", flat=True).first() or ""
        label, _separator, said = list_name.partition("?")
        view = next((view for view in views_of(list_name, request) if view.pk == key), None)
        if view is None or label != model_admin.opts.label_lower:
            raise Http404
        if view.owner_id != request.user.pk:
            raise PermissionDenied
        context = {
            **model_admin.admin_site.each_context(request),
            "title": _("Saved view"),
            "opts": model_admin.opts,
            "view": view,
            "list_url": model_admin.list_url(view.query),
            "filters": filters_of(model_admin, request, view.query),
        }
        if request.method == "POST" and request.POST.get("delete") == "asked":
            return TemplateResponse(
                request, "admin/saved_view_delete.html", {**context, "title": _("Delete the saved view")}
            )
        if request.method == "POST" and request.POST.get("delete") == "confirmed":
            text = _("The view “%(name)s” was deleted.") % {"name": view.name}
            view.delete()
            model_admin.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(model_admin.list_url(said))
        form = ChangedViewForm(request.POST if request.method == "POST" else None, instance=view)
        if form.is_valid():
            self._say_saved(model_admin, request, form.save())
            return HttpResponseRedirect(model_admin.list_url(view.query))
        return TemplateResponse(request, "admin/saved_view_form.html", {**context, "form": form})

    def _say_saved(self, model_admin: KeysetAdmin, request: HttpRequest, view: SavedView) -> None:
        model_admin.message_user(request, _("The view “%(name)s” was saved.") % {"name": view}, messages.SUCCESS)


def filters_of(model_admin: KeysetAdmin, request: HttpRequest, query: str) -> list[tuple[str, str]]:
    """Return what a query string narrows a list to, as names and values in the words of its filters."""
    parameters = {name: [str(value)] for name, value in QueryDict(query).items()}
    searched = [(_("search"), value) for value in parameters.pop(SEARCH_VAR, ())]
    filters: list[Any] = [spec for spec in model_admin.get_list_filter(request) if issubclass(spec, BarFilter)]
    given = [spec(request, parameters, model_admin.model, model_admin) for spec in filters]
    return [*searched, *((str(one.title), one.shown_value()) for one in given if one.given)]


def errors_of(form: forms.BaseForm) -> Sequence[str]:
    """Return the errors of a form as sentences."""
    return [str(error) for errors in form.errors.values() for error in errors]
