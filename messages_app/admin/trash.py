"""The trash of a list: delete rows with a confirmation, list deleted rows with time and user, restore them.

Only a purge removes rows for good: the command, and the actions of the trash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected as ask_to_delete_selected
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import model_ngettext, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.admin_roles import Page, url_name
from access_app.conf import conf
from access_app.db import Database
from access_app.errors import NotFound
from access_app.models import AuditAction, Project, Role
from access_app.request_database import database
from access_app.visibility import visible_to
from messages_app.models import Session
from messages_app.queries import as_uuid
from messages_app.safe_text import moment, one_line, visible

from .selection import BULK_ROWS
from .time_zones import with_zone

if TYPE_CHECKING:
    from .keyset import KeysetAdmin

# The message in the log of admin actions; pages translate it.
RESTORED = "Restored"
TEMPLATE = "admin/trash/delete_confirmation.html"
TEMPLATE_OF_SELECTED = "admin/trash/delete_selected_confirmation.html"


@dataclass(frozen=True, kw_only=True)
class Trash:
    """The trash of an admin whose model has `objects` (not deleted), `with_deleted`, `deleted_at` and `deleted_by`."""

    delete: Callable[..., None]
    """The write that deletes: (database, primary key, by=user name). Raises NotFound if it cannot delete the row."""
    restore: Callable[..., None]
    """The write that restores: (database, primary key). Raises NotFound if it cannot restore the row."""
    purge: Callable[..., bool]
    """The write that removes a row of the trash for good: (database, primary key). Returns whether the row was there."""
    what_is_restored: Any
    """Return the sentence that says what a restored row brings back."""
    other: tuple[Any, str]
    """The name of the other trash and the name of its URL, to link to it."""
    search_help: Any
    """The help of the search in the trash, which finds by names only."""
    named_by: str
    """The column that names the rows."""
    columns: Sequence[str]
    """The other columns of the admin that the trash shows, behind its own."""
    related: Sequence[str] = ("project",)
    """Relations that `find` loads with the row."""
    session_of: Callable[[Any], Session] | None = None
    """Returns the session of a row, with which it can be in the trash, too."""
    url_after_delete: Callable[[Database, Any], str] | None = None
    """Returns where to go after a row was deleted; without it to the list."""

    # --- Rows -----------------------------------------------------------------------------------------------

    def is_shown(self, model_admin: KeysetAdmin, request: HttpRequest) -> bool:
        """Return whether the request is for the list of the trash."""
        match = request.resolver_match
        return match is not None and match.url_name == url_name(model_admin, "trash")

    def rows(self, model_admin: KeysetAdmin, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the list: those in the trash, or the others."""
        if self.is_shown(model_admin, request):
            # Rows that were deleted individually: a message deleted with its session is restored with the session.
            trash: QuerySet[Any] = model_admin.rows_of(request, model_admin.model.with_deleted).filter(
                deleted_at__isnull=False
            )
            return visible_to(trash, model_admin.scope(request, Role.EDITOR))
        alive: QuerySet[Any] = model_admin.rows_of(request, model_admin.model.objects).visible_to(
            model_admin.scope(request)
        )
        return alive

    def find(self, model_admin: KeysetAdmin, request: HttpRequest, object_id: str) -> Any:
        """Return the row, also if it is deleted: its page has a button to restore it. None if there is none."""
        try:
            key = UUID(object_id)
        except ValueError:
            return None
        rows = model_admin.rows_of(request, model_admin.model.with_deleted).visible_to(model_admin.scope(request))
        return rows.filter(pk=key).select_related(*self.related).first()

    def is_alive(self, row: Any) -> bool:
        """Return whether a row is neither deleted nor in a deleted session."""
        return row.deleted_at is None and not self._is_with_session(row)

    def _is_with_session(self, row: Any) -> bool:
        return self.session_of is not None and self.session_of(row).deleted_at is not None

    def already_deleted(self, model_admin: KeysetAdmin, row: Any) -> str:
        """Return the reason why `row` cannot be deleted, as a sentence, or ""."""
        words = {"name": model_admin.row_name(row)}
        if row.deleted_at:
            return _("“%(name)s” is already in the trash.") % words
        return _("“%(name)s” is in the trash with its session.") % words if self._is_with_session(row) else ""

    # --- Pages ----------------------------------------------------------------------------------------------

    def urls(self, model_admin: KeysetAdmin) -> list[URLPattern]:
        pages = (
            Page("trash/", lambda model_admin, request: model_admin.changelist_view(request), "trash"),
            Page("undo/", self.undo, "undo"),
            Page("<path:object_id>/restore/", self.restore_page, "restore"),
            Page("<path:object_id>/purge/", self.purge_page, "purge"),
        )
        return [page.url(model_admin) for page in pages]

    def context(self, model_admin: KeysetAdmin, request: HttpRequest) -> dict[str, Any]:
        """Return what the list needs, whether it is that of the trash or links to it."""
        in_trash = self.is_shown(model_admin, request)
        return {
            "in_trash": in_trash,
            "what_is_restored": self.what_is_restored,
            "trash_search_help": self.search_help,
            "trash_days": conf.TRASH_DAYS,
            "has_days_of_projects": in_trash and some_have_days(),
            "other_trash": (self.other[0], reverse(self.other[1])),
        }

    def context_of(self, model_admin: KeysetAdmin, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what the page of a row needs, whose note says that it is deleted."""
        found = {
            "has_delete_permission": model_admin.has_delete_permission(request, row),
            "has_restore_permission": model_admin.has_editor_permission(request, row),
        }
        if not row.deleted_at:
            return found
        return {
            **found,
            "purged_from": purged_from(row),
            "contents": model_admin.contents([row]),
            "what_is_restored": self.what_is_restored,
            "has_purge_permission": model_admin.has_owner_permission(request, row),
        }

    def undo(self, model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
        """Restore the rows of a deletion: the view behind the button in its success message."""
        if not model_admin.has_editor_permission(request):
            raise PermissionDenied
        keys = [key for text in request.POST.get("rows", "").split(",") if (key := as_uuid(text)) is not None]
        model_admin.use_database_with(request, keys)
        deleted = model_admin.rows_of(request, model_admin.model.with_deleted)
        rows_of_reader = deleted.visible_to(model_admin.scope(request, Role.EDITOR))
        rows = list(rows_of_reader.select_related(*self.related).filter(pk__in=keys[:BULK_ROWS]))
        restored = [row for row in rows if self.restore_row(model_admin, request, row)]
        self.report_restored(model_admin, request, restored)
        back = request.GET.get("back", "")
        if back and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
            return HttpResponseRedirect(back)
        if len(restored) == 1:
            return HttpResponseRedirect(url_of(model_admin, restored[0].pk))
        return HttpResponseRedirect(model_admin.list_url())

    def restore_page(self, model_admin: KeysetAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation on GET, restore on POST."""
        row = self.find(model_admin, request, unquote(object_id))
        if not model_admin.has_editor_permission(request, row):
            raise PermissionDenied
        if row is None:
            return model_admin.missing(request)
        if request.method == "POST":
            if self.restore_row(model_admin, request, row):
                self.report_restored(model_admin, request, [row])
            return HttpResponseRedirect(url_of(model_admin, row.pk))
        return self.ask_to_restore(model_admin, request, _confirmation_of(model_admin, row), is_action=False)

    def purge_page(self, model_admin: KeysetAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation on GET, remove a row of the trash for good on POST."""
        row = self.find(model_admin, request, unquote(object_id))
        if not model_admin.has_owner_permission(request, row):
            raise PermissionDenied
        if row is None:
            return model_admin.missing(request)
        if row.deleted_at is None:
            text = _("“%(name)s” is not in the trash. Only what is in the trash can be purged.")
            model_admin.message_user(request, text % {"name": model_admin.row_name(row)}, messages.INFO)
            return HttpResponseRedirect(url_of(model_admin, row.pk))
        if request.method == "POST":
            self.purge_rows(model_admin, request, [row])
            return HttpResponseRedirect(reverse(f"admin:{url_name(model_admin, 'trash')}"))
        return self.ask_to_purge(model_admin, request, _confirmation_of(model_admin, row), is_action=False)

    def ask_to_restore(
        self, model_admin: KeysetAdmin, request: HttpRequest, confirmation: Mapping[str, Any], *, is_action: bool
    ) -> HttpResponse:
        context = {
            **model_admin.admin_site.each_context(request),
            **confirmation,
            "title": _("Restore"),
            "opts": model_admin.opts,
            "what_is_restored": self.what_is_restored,
            "is_action": is_action,
        }
        return TemplateResponse(request, "admin/trash/restore_confirmation.html", context)

    def ask_to_purge(
        self, model_admin: KeysetAdmin, request: HttpRequest, confirmation: Mapping[str, Any], *, is_action: bool
    ) -> HttpResponse:
        context = {
            **model_admin.admin_site.each_context(request),
            **confirmation,
            "title": _("Purge for good"),
            "opts": model_admin.opts,
            "is_action": is_action,
        }
        return TemplateResponse(request, "admin/trash/purge_confirmation.html", context)

    # --- Writes ---------------------------------------------------------------------------------------------

    def delete_row(self, model_admin: KeysetAdmin, request: HttpRequest, row: Any) -> None:
        """Delete a row by the write instead of the ORM."""
        try:
            self.delete(database(request), row.pk, by=request.user.get_username())
        except NotFound:
            # Another user has deleted it meanwhile.
            return
        model_admin.note(request, row, AuditAction.DELETE)

    def restore_row(self, model_admin: KeysetAdmin, request: HttpRequest, row: Any) -> bool:
        """Restore a row. Return whether that was possible; otherwise the reader is told why not."""
        try:
            self.restore(database(request), row.pk)
        except NotFound as error:
            model_admin.message_user(request, f"{model_admin.row_name(row)}: {error.message}", messages.ERROR)
            return False
        model_admin.log_change(request, row, RESTORED)
        model_admin.note(request, row, AuditAction.RESTORE)
        return True

    def purge_rows(self, model_admin: KeysetAdmin, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Remove rows for good, and tell the reader how many."""
        purged = 0
        for row in rows:
            # Read whole now: the log needs its name when the row is gone.
            logged = model_admin.rows_of(request, model_admin.model.with_deleted).filter(pk=row.pk)
            # A row that was restored meanwhile is not in the trash any more, so it stays.
            if logged and self.purge(database(request), row.pk):
                model_admin.log_deletions(request, logged)
                model_admin.note(request, row, AuditAction.PURGE)
                purged += 1
        text = ngettext("%(count)d %(rows)s was purged.", "%(count)d %(rows)s were purged.", purged)
        words = {"count": purged, "rows": model_ngettext(model_admin.opts, purged)}
        model_admin.message_user(request, text % words, messages.SUCCESS if purged else messages.INFO)

    def report_restored(self, model_admin: KeysetAdmin, request: HttpRequest, rows: Sequence[Any]) -> None:
        if len(rows) == 1:
            name = model_admin.row_name(rows[0])
            link = format_html('<a href="{}"><bdi>{}</bdi></a>', url_of(model_admin, rows[0].pk), name)
            text: str = format_html(_("“%(name)s” was restored.") % {"name": "{}"}, link)
        elif rows:
            text = _("%(count)d %(rows)s were restored.") % {
                "count": len(rows),
                "rows": model_ngettext(model_admin.opts, len(rows)),
            }
        else:
            return
        model_admin.message_user(request, text, messages.SUCCESS)

    def report_deleted(self, model_admin: KeysetAdmin, request: HttpRequest, text: str, keys: Sequence[Any]) -> None:
        # The button belongs to the form "undo" of base_site.html, which has the CSRF token.
        button = format_html(
            '<button type="submit" form="undo" formaction="{}" name="rows" value="{}">{}</button>',
            *(reverse(f"admin:{url_name(model_admin, 'undo')}"), ",".join(map(str, keys)), _("Undo")),
        )
        model_admin.message_user(request, format_html("{} {}", text, button), messages.SUCCESS)

    def after_delete(self, model_admin: KeysetAdmin, request: HttpRequest, name: str, key: Any) -> HttpResponse:
        """Say that a row was deleted, and go on to the list, with the filters and the search that it had."""
        # Django would redirect to the index, because it returns only users with the change permission to the list.
        text = _("“%(name)s” was moved to the trash. New data for it is refused until it is restored.") % {"name": name}
        self.report_deleted(model_admin, request, text, [key])
        if self.url_after_delete is not None:
            return HttpResponseRedirect(self.url_after_delete(database(request), key))
        kept: dict[str, Any] = {
            "preserved_filters": model_admin.get_preserved_filters(request),
            "opts": model_admin.opts,
        }
        return HttpResponseRedirect(str(add_preserved_filters(kept, model_admin.list_url())))

    # --- The list of the trash --------------------------------------------------------------------------------

    def list_display(self, model_admin: KeysetAdmin, request: HttpRequest) -> list[Any]:
        """Return the columns of the trash: behind the name, where phones show them, a button to restore the row, and when it is
        purged if that is set."""

        @admin.display(description="")
        def restore(row: Any) -> SafeString:
            if self._is_with_session(row):
                assert self.session_of is not None, "see _is_with_session"
                session = reverse("admin:messages_app_session_change", args=[quote(self.session_of(row).pk)])
                return format_html('<a href="{}">{}</a>', session, _("Restore its session first"))
            # The button belongs to the form of keyset_change_list.html, which has the CSRF token.
            url = reverse(f"admin:{url_name(model_admin, 'undo')}", query={"back": request.get_full_path()})
            return format_html(
                '<button type="submit" form="restore-row" formaction="{}" name="rows" value="{}" class="row-button">{}'
                '<span class="visually-hidden"> {}</span></button>',
                *(url, row.pk, _("Restore"), model_admin.row_name(row)),
            )

        when = [purged] if conf.TRASH_DAYS or some_have_days() else []
        return [self.named_by, restore, *when, deleted, deleter, *self.columns]

    def offered(self, model_admin: KeysetAdmin, request: HttpRequest, actions: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of `actions` that are for the rows of the list: in the trash its own, outside all others."""
        in_trash = self.is_shown(model_admin, request)
        return {name: action for name, action in actions.items() if (name in _ACTIONS_OF_TRASH) == in_trash}


# --- Actions ----------------------------------------------------------------------------------------------------------

_ACTIONS_OF_TRASH = frozenset(["restore_selected", "purge_selected"])


@admin.action(description=gettext_lazy("Move selected %(verbose_name_plural)s to the trash"), permissions=["delete"])
def delete_selected(model_admin: KeysetAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Ask for confirmation, then move rows to the trash."""
    selection = model_admin.bulk.selection(model_admin, request, queryset)
    rows = selection.rows
    if not rows:
        model_admin.message_user(request, _("The selected rows are already in the trash."), messages.INFO)
        return None
    if not request.POST.get("post"):
        response = ask_to_delete_selected(model_admin, request, rows)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            # Django's title is "Delete multiple objects" for a single one, too.
            response.context_data["title"] = _("Move to the trash")
            response.context_data |= model_admin.bulk.confirmation(model_admin, selection)
        return response
    model_admin.log_deletions(request, rows)
    model_admin.delete_queryset(request, rows)
    text = ngettext(
        "%(count)d %(rows)s was moved to the trash.", "%(count)d %(rows)s were moved to the trash.", len(rows)
    )
    words = {"count": len(rows), "rows": model_ngettext(model_admin.opts, len(rows))}
    model_admin.given_trash.report_deleted(model_admin, request, text % words, [row.pk for row in rows])
    return None


@admin.action(description=gettext_lazy("Restore selected %(verbose_name_plural)s"), permissions=["editor"])
def restore_selected(model_admin: KeysetAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Ask for confirmation, then restore rows."""
    trash = model_admin.given_trash
    selection = model_admin.bulk.selection(model_admin, request, queryset)
    if request.POST.get("post"):
        restored = [row for row in selection.rows if trash.restore_row(model_admin, request, row)]
        trash.report_restored(model_admin, request, restored)
        return None
    confirmation = model_admin.bulk.confirmation(model_admin, selection)
    return trash.ask_to_restore(model_admin, request, confirmation, is_action=True)


@admin.action(description=gettext_lazy("Purge selected %(verbose_name_plural)s for good"), permissions=["owner"])
def purge_selected(model_admin: KeysetAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Ask for confirmation, then remove rows of the trash with everything in them."""
    trash = model_admin.given_trash
    # Fewer than other actions, because a purge looks into every table.
    selection = model_admin.bulk.selection(
        model_admin, request, queryset, most=model_admin.list_per_page, role=Role.OWNER
    )
    if request.POST.get("post"):
        trash.purge_rows(model_admin, request, selection.rows)
        return None
    confirmation = model_admin.bulk.confirmation(model_admin, selection)
    return trash.ask_to_purge(model_admin, request, confirmation, is_action=True)


def _confirmation_of(model_admin: KeysetAdmin, row: Any) -> dict[str, Any]:
    return {"objects": [row], "names": [model_admin.row_name(row)], "contents": model_admin.contents([row])}


def url_of(model_admin: KeysetAdmin, key: Any) -> str:
    """Return the URL of the page of a row."""
    return reverse(f"admin:{url_name(model_admin, 'change')}", args=[quote(key)])


def name_deletions(response: HttpResponse) -> HttpResponse:
    """Return a page of Django with the history of a row, which says what was deleted and restored."""
    if isinstance(response, TemplateResponse) and response.context_data is not None:
        for entry in response.context_data["action_list"]:
            # Django has no text for a deletion, because its deleted rows have no history page.
            if entry.is_deletion():
                entry.change_message = _("Deleted")
            elif entry.change_message == RESTORED:
                entry.change_message = _("Restored")
    return response


# --- Columns ----------------------------------------------------------------------------------------------------------


def purged_from(row: Any) -> datetime | None:
    """Return the time from which `purge --trash` removes a deleted row; None if no time is set."""
    days = row.project.days_in_trash()
    return None if days is None else row.deleted_at + timedelta(days=days)


def some_have_days() -> bool:
    """Return whether a project says itself how long its trash is kept."""
    return Project.objects.filter(trash_days__isnull=False).exists()


@admin.display(description=with_zone(gettext_lazy("deleted at")))
def deleted(row: Any) -> SafeString:
    return moment(row.deleted_at)


@admin.display(description=gettext_lazy("deleted by"))
def deleter(row: Any) -> SafeString:
    return visible(one_line(row.deleted_by, 80))


@admin.display(description=with_zone(gettext_lazy("purged from")))
def purged(row: Any) -> SafeString:
    return moment(purged_from(row))
