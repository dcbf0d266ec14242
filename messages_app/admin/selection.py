"""Lists whose actions are for the chosen rows, or for all rows that the filters match, after a page that asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import model_ngettext
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.models import Role
from access_app.visibility import visible_to
from messages_app.queries import as_uuid

from .walks import all_keys

if TYPE_CHECKING:
    from .keyset import KeysetAdmin

BULK_ROWS = 1_000
"""Most rows that an action changes at once, because each is a write of its own, of a few milliseconds."""
NAMES_LISTED = 50
"""Names that a confirmation lists."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rows of an action."""

    rows: QuerySet[Any]
    is_all: bool = False
    """Whether they were chosen as all rows that match the filters."""
    has_more: bool = False
    """Whether more rows match than one action changes."""

    @property
    def keys(self) -> str:
        """The primary keys in one text, because a form may have 1,000 fields only."""
        return ",".join(str(row.pk) for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class BulkActions:
    """The rows of the actions of a list."""

    for_all: bool = False
    """Whether the actions understand "select all that match"."""

    def refusal(self, model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse | None:
        """Use the database that has the chosen rows. Return a redirect with the reason if several have them; None otherwise."""
        if not self.for_all or request.method != "POST":
            return None
        keys = [key for text in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME) if (key := as_uuid(text))]
        is_all = request.POST.get("select_across") == "1" and model_admin.readable(request) is not None
        if not is_all and model_admin.use_database_with(request, keys):
            return None
        text = _("These rows are in several databases. Choose a project first. Nothing was changed.")
        model_admin.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())

    def selection(
        self,
        model_admin: KeysetAdmin,
        request: HttpRequest,
        queryset: QuerySet[Any],
        most: int | None = None,
        role: Role = Role.EDITOR,
    ) -> Selection:
        """Return the rows of an action: those that were chosen on the page, or the newest `most` (default: BULK_ROWS) of all that match.

        Rows of projects in which the reader does not have the role are left out.

        A confirmation sends the rows that it showed, so that rows that match since then are not changed unseen. Raise
        TookTooLong.
        """
        scope = model_admin.scope(request, role)
        if request.POST.get("select_across") != "1":
            return Selection(rows=visible_to(queryset, scope)[: model_admin.list_per_page])
        most = BULK_ROWS if most is None else most
        if "rows" in request.POST:
            keys = [key for text in request.POST["rows"].split(",") if (key := as_uuid(text)) is not None]
            has_more = False
        else:
            keys = [key for page in all_keys(model_admin, request, most + 1) for key in page]
            has_more = len(keys) > most
        rows = visible_to(model_admin.get_queryset(request), scope).filter(pk__in=keys[:most]).order_by("-pk")
        return Selection(rows=rows, is_all=True, has_more=has_more)

    def confirmation(self, model_admin: KeysetAdmin, selection: Selection) -> dict[str, Any]:
        """Return the context of a page that asks before an action."""
        count = len(selection.rows)
        words = {"count": f"{count:,}", "rows": model_ngettext(model_admin.opts, count)}
        match = ""
        if selection.has_more:
            match = _(
                "More than %(count)s %(rows)s match the filters. This is for the newest %(count)s; repeat it for the others."
            )
        elif selection.is_all:
            match = ngettext("%(count)s %(rows)s matches the filters.", "%(count)s %(rows)s match the filters.", count)
        return {
            "selection": selection,
            "matching": match % words if match else "",
            "names": [model_admin.row_name(row) for row in selection.rows[:NAMES_LISTED]],
            "unnamed": max(count - NAMES_LISTED, 0),
            "contents": model_admin.contents(selection.rows),
            "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        }
