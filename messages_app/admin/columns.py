"""The columns of a list: those in its address, otherwise the reader's own for this list, otherwise the usual ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.utils import label_for_field
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    QueryDict,
)
from django.urls import URLPattern
from django.utils.translation import gettext as _

from access_app.admin_roles import Page
from messages_app.models import ListColumns
from messages_app.safe_text import one_line

if TYPE_CHECKING:
    from .keyset import KeysetAdmin

COLUMNS = "columns"
NAMES_CHARACTERS = 200


@dataclass(frozen=True)
class Columns:
    """The columns of a list that a reader can choose. Without them the columns are those of `list_display`."""

    known: Sequence[str] = ()
    """In order. The first one names the row. `list_display` has the usual ones."""

    def urls(self, model_admin: KeysetAdmin) -> list[URLPattern]:
        return [Page("columns/", self.choose, "columns").url(model_admin)]

    def context(self, model_admin: KeysetAdmin, request: HttpRequest) -> dict[str, Any]:
        """Return the name and label of each column that can be chosen, and whether it is shown. Warn of names in the address that
        the list does not have."""
        if not self.known or model_admin.in_trash(request):
            return {"columns_offered": []}
        known = self.known_in(model_admin, request.GET)
        if warning := unknown_columns(request.GET, known):
            model_admin.message_user(request, warning, messages.WARNING)
        shown = self.shown(model_admin, request)
        labels = {name: str(label_for_field(name, model_admin.model, model_admin)) for name in known}
        return {"columns_offered": [(name, label, name in shown) for name, label in labels.items()]}

    def known_in(self, model_admin: KeysetAdmin, parameters: Mapping[str, str]) -> Sequence[str]:
        """Return the columns of the list with these parameters, which may have a title and columns of its own."""
        named = model_admin.named_list(parameters)
        return named.columns if named is not None and named.columns else self.known

    def shown(self, model_admin: KeysetAdmin, request: HttpRequest) -> list[str]:
        """Return the columns that the list shows to the reader."""
        found: list[str] | None = getattr(request, "list_columns", None)
        if found is None:
            found = columns_of(
                model_admin.list_name(request.GET),
                request.user,
                request.GET,
                self.known_in(model_admin, request.GET),
                model_admin.usual_columns(request),
            )
            # Kept, because Django asks several times.
            request.list_columns = found  # type: ignore[attr-defined]  # read only here
        return found

    def are_chosen(self, model_admin: KeysetAdmin, request: HttpRequest) -> bool:
        """Return whether the reader chose the columns, now or earlier."""
        if any(name in self.known for name in columns_in(request.GET)):
            return True
        usual = in_order(model_admin.usual_columns(request), self.known_in(model_admin, request.GET))
        return self.shown(model_admin, request) != usual

    def choose(self, model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
        """Show the list with the chosen columns, and with "keep" also from now on; "forget" brings back the usual ones."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.known:
            raise Http404
        query = QueryDict(request.POST.get("query", ""), mutable=True)
        query.pop(COLUMNS, None)
        chosen = in_order(request.POST.getlist("column"), self.known_in(model_admin, query))
        if "forget" in request.POST:
            forget_columns(model_admin.list_name(query), request.user)
        elif "keep" in request.POST:
            keep_columns(model_admin.list_name(query), request.user, chosen)
            text = _("This list shows you these columns from now on.")
            model_admin.message_user(request, text, messages.SUCCESS)
        else:
            query[COLUMNS] = ",".join(chosen)
        return HttpResponseRedirect(model_admin.list_url(query.urlencode(safe=",")))


def columns_in(parameters: QueryDict) -> list[str]:
    """Return the names in the address of a list, known or not."""
    return [name for part in parameters.get(COLUMNS, "").split(",") if (name := part.strip())]


def in_order(names: Collection[str], known: Sequence[str]) -> list[str]:
    """Return those of `names` that are known, in the order of `known`. The first one names the row and is always shown."""
    return [name for name in known if name in names or name == known[0]]


def columns_of(
    list_name: str, user: Any, parameters: QueryDict, known: Sequence[str], usual: Sequence[str]
) -> list[str]:
    """Return the columns that a list shows. One query without columns in the address."""
    given = columns_in(parameters)
    if any(name in known for name in given):
        return in_order(given, known)
    own = ListColumns.objects.filter(owner=user, list_name=list_name).values_list("names", flat=True).first()
    return in_order(own if own is not None else usual, known)


def unknown_columns(parameters: QueryDict, known: Collection[str]) -> str:
    """Return a sentence about names in the address that the list does not have, or ""."""
    unknown = [name for name in columns_in(parameters) if name not in known]
    if not unknown:
        return ""
    words = {"names": one_line(", ".join(unknown), NAMES_CHARACTERS), "known": ", ".join(known)}
    return _("Unknown columns were left out: %(names)s. The list has: %(known)s.") % words


def keep_columns(list_name: str, user: Any, names: Iterable[str]) -> None:
    """Make the columns those that the reader sees when the address of the list has none."""
    ListColumns.objects.update_or_create(owner=user, list_name=list_name, defaults={"names": list(names)})


def forget_columns(list_name: str, user: Any) -> None:
    """Show the reader the usual columns again."""
    ListColumns.objects.filter(owner=user, list_name=list_name).delete()
