"""Base admin with a trash: delete with a confirmation, list deleted rows with time and user, restore them.

Only a purge removes rows for good: the command, and the actions of the trash, whose writes are in traces_app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected as ask_to_delete_selected
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import model_ngettext, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Field, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.conf import conf
from access_app.errors import NotFound
from access_app.models import AuditAction, Project, Role
from access_app.visibility import visible_to
from messages_app.queries import as_uuid
from messages_app.safe_text import moment, one_line, visible

from .filters import OrderFilter
from .keyset import KeysetChangeList
from .selection import BULK_ROWS, SelectingAdmin
from .time_zones import with_zone

# The message in the log of admin actions; pages translate it.
RESTORED = "Restored"


def purged_from(row: Any) -> datetime | None:
    """Return the time from which `purge --trash` removes a deleted row; None if no time is set."""
    days = row.project.days_in_trash()
    return None if days is None else row.deleted_at + timedelta(days=days)


def some_have_days() -> bool:
    """Return whether a project says itself how long its trash is kept."""
    return Project.objects.filter(trash_days__isnull=False).exists()


class TrashAdmin(SelectingAdmin):
    """An admin of a model with `objects` (not deleted), `with_deleted`, `deleted_at` and `deleted_by`."""

    delete_confirmation_template = "admin/trash/delete_confirmation.html"
    delete_selected_confirmation_template = "admin/trash/delete_selected_confirmation.html"
    actions: Sequence[Any] = ("delete_selected", "restore_selected", "purge_selected")
    list_actions: Sequence[str] = ("delete_selected",)
    """Those of the list."""
    trash_actions: Sequence[str] = ("restore_selected", "purge_selected")
    """Those of the trash."""

    delete_row: ClassVar[Callable[..., None]]
    """The write that deletes: (primary key, by=user name). Raises NotFound if it cannot delete the row."""
    restore_row: ClassVar[Callable[..., None]]
    """The write that restores: (primary key). Raises NotFound if it cannot restore the row."""

    purge_row: ClassVar[Callable[..., bool] | None] = None
    """The write that removes a row of the trash for good: (primary key). Returns whether the row was there; None where
    nothing can be purged."""

    what_is_restored: ClassVar[Any]
    """What restoring a row brings back, as a sentence."""

    other_trash: ClassVar[tuple[Any, str]]
    """The name of the other trash and the name of its URL, to link to it."""

    trash_search_help: Any
    """The help of the search in the trash, which finds by names only."""
    page_related: Sequence[str] = ("project",)
    """Relations that `get_object` loads with the row."""

    # --- Rows -----------------------------------------------------------------------------------------------

    def in_trash(self, request: HttpRequest) -> bool:
        match = request.resolver_match
        return match is not None and match.url_name == self._url_name("trash")

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the list: those in the trash, or the others."""
        if self.in_trash(request):
            # Rows that were deleted individually: a message deleted with its session is restored with the session.
            trash: QuerySet[Any] = self.model.with_deleted.filter(deleted_at__isnull=False)
            return visible_to(trash, self.scope(request, Role.EDITOR))
        alive: QuerySet[Any] = self.model.objects.visible_to(self.scope(request))
        return alive

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row, also if it is deleted: its page has a button to restore it."""
        try:
            rows = self.model.with_deleted.visible_to(self.scope(request)).filter(pk=UUID(object_id))
        except ValueError:
            return None
        return rows.select_related(*self.page_related).first()

    def order_column(self, request: HttpRequest) -> str | None:
        return "deleted_at" if self.in_trash(request) else super().order_column(request)

    def list_order(self, request: HttpRequest) -> str:
        return _("Last deleted first") if self.in_trash(request) else super().list_order(request)

    def columns_offered(self, request: HttpRequest) -> list[tuple[str, str, bool]]:
        return [] if self.in_trash(request) else super().columns_offered(request)

    def api_request(self, request: HttpRequest, changelist: KeysetChangeList) -> dict[str, Any]:
        # The trash of the API has messages that were deleted with their session, too, and another order.
        return {} if self.in_trash(request) else super().api_request(request, changelist)

    def get_list_filter(self, request: HttpRequest) -> Any:
        filters = super().get_list_filter(request)
        # The trash is ordered by the time of deletion.
        return [one for one in filters if one is not OrderFilter] if self.in_trash(request) else filters

    # --- Pages ----------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("trash/", wrap(self.changelist_view), name=self._url_name("trash")),
            path("undo/", wrap(self.undo_view), name=self._url_name("undo")),
            path("<path:object_id>/restore/", wrap(self.restore_view), name=self._url_name("restore")),
            path("<path:object_id>/purge/", wrap(self.purge_view), name=self._url_name("purge")),
            *super().get_urls(),
        ]

    def row_urls(self, key: str, views: Iterable[tuple[str, Callable[..., HttpResponse], str]]) -> list[URLPattern]:
        """Return the routes below the id of a row, which views get as `key`: each from its rest, its view and its name."""
        wrap = self.admin_site.admin_view
        return [path(f"<uuid:{key}>/{route}", wrap(view), name=self._url_name(name)) for route, view, name in views]

    def list_title(self, request: HttpRequest) -> str:
        title = super().list_title(request)
        return _("Trash: %(rows)s") % {"rows": title} if self.in_trash(request) else title

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {
            "in_trash": self.in_trash(request),
            "what_is_restored": self.what_is_restored,
            "trash_search_help": self.trash_search_help,
            "trash_days": conf.TRASH_DAYS,
            "has_days_of_projects": self.in_trash(request) and some_have_days(),
            "trash_url": reverse(f"admin:{self._url_name('trash')}"),
            "other_trash": (self.other_trash[0], reverse(self.other_trash[1])),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request):
            raise PermissionDenied
        if row is None:
            return self.missing(request)
        if reason := self.already_deleted(row):
            # Deleted in another tab or by another user while this page was open.
            self.message_user(request, reason, messages.INFO)
            return HttpResponseRedirect(self.url_of(row.pk))
        return super().delete_view(request, object_id, {"contents": self.contents([row]), **(extra_context or {})})

    def already_deleted(self, row: Any) -> str:
        """Return the reason why `row` cannot be deleted, as a sentence, or ""."""
        return _("“%(name)s” is already in the trash.") % {"name": self.row_name(row)} if row.deleted_at else ""

    def undo_view(self, request: HttpRequest) -> HttpResponse:
        """Restore the rows of a deletion: the view behind the button in its success message."""
        if not self.has_restore_permission(request):
            raise PermissionDenied
        rows_of_reader = self.model.with_deleted.visible_to(self.scope(request, Role.EDITOR))
        keys = [key for text in request.POST.get("rows", "").split(",") if (key := as_uuid(text)) is not None]
        self.use_database_with(request, keys)
        rows = list(rows_of_reader.select_related(*self.page_related).filter(pk__in=keys[:BULK_ROWS]))
        restored = [row for row in rows if self._restore(request, row)]
        self._report_restored(request, restored)
        back = request.GET.get("back", "")
        if back and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
            return HttpResponseRedirect(back)
        if len(restored) == 1:
            return HttpResponseRedirect(self.url_of(restored[0].pk))
        return HttpResponseRedirect(reverse(f"admin:{self._url_name('changelist')}"))

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation on GET, restore on POST."""
        row = self.get_object(request, unquote(object_id))
        if not self.has_restore_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self.missing(request)
        if request.method == "POST":
            if self._restore(request, row):
                self._report_restored(request, [row])
            return HttpResponseRedirect(self.url_of(row.pk))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Restore"),
            "opts": self.opts,
            "objects": [row],
            "names": [self.row_name(row)],
            "contents": self.contents([row]),
            "what_is_restored": self.what_is_restored,
            "is_action": False,
        }
        return TemplateResponse(request, "admin/trash/restore_confirmation.html", context)

    def purge_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation on GET, remove a row of the trash for good on POST."""
        row = self.get_object(request, unquote(object_id))
        if not self.has_purge_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self.missing(request)
        if row.deleted_at is None:
            text = _("“%(name)s” is not in the trash. Only what is in the trash can be purged.")
            self.message_user(request, text % {"name": self.row_name(row)}, messages.INFO)
            return HttpResponseRedirect(self.url_of(row.pk))
        if request.method == "POST":
            self._purge(request, [row])
            return HttpResponseRedirect(reverse(f"admin:{self._url_name('trash')}"))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Purge for good"),
            "opts": self.opts,
            "objects": [row],
            "names": [self.row_name(row)],
            "contents": self.contents([row]),
            "is_action": False,
        }
        return TemplateResponse(request, "admin/trash/purge_confirmation.html", context)

    def trash_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what the note on the page of a deleted row needs; empty for other rows."""
        if not row.deleted_at:
            return {}
        return {
            "purged_from": purged_from(row),
            "contents": self.contents([row]),
            "what_is_restored": self.what_is_restored,
            "has_purge_permission": self.has_purge_permission(request, row),
        }

    def url_of(self, key: Any) -> str:
        """Return the URL of the page of a row."""
        return reverse(f"admin:{self._url_name('change')}", args=[quote(key)])

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            for entry in response.context_data["action_list"]:
                # Django has no text for a deletion, because its deleted rows have no history page.
                if entry.is_deletion():
                    entry.change_message = _("Deleted")
                elif entry.change_message == RESTORED:
                    entry.change_message = _("Restored")
        return response

    # --- Actions --------------------------------------------------------------------------------------------

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        offered = self.trash_actions if self.in_trash(request) else self.list_actions
        return {name: action for name, action in super().get_actions(request).items() if name in offered}

    @admin.action(
        description=gettext_lazy("Move selected %(verbose_name_plural)s to the trash"), permissions=["delete"]
    )
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        selection = self.selection(request, queryset)
        rows = selection.rows
        if not rows:
            self.message_user(request, _("The selected rows are already in the trash."), messages.INFO)
            return None
        if not request.POST.get("post"):
            response = ask_to_delete_selected(self, request, rows)
            if isinstance(response, TemplateResponse) and response.context_data is not None:
                # Django's title is "Delete multiple objects" for a single one, too.
                response.context_data["title"] = _("Move to the trash")
                response.context_data |= self.confirmation(selection)
            return response
        self.log_deletions(request, rows)
        self.delete_queryset(request, rows)
        text = ngettext(
            "%(count)d %(rows)s was moved to the trash.", "%(count)d %(rows)s were moved to the trash.", len(rows)
        )
        words = {"count": len(rows), "rows": model_ngettext(self.opts, len(rows))}
        self._report_deleted(request, text % words, [row.pk for row in rows])
        return None

    @admin.action(description=gettext_lazy("Restore selected %(verbose_name_plural)s"), permissions=["restore"])
    def restore_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        selection = self.selection(request, queryset)
        if request.POST.get("post"):
            self._report_restored(request, [row for row in selection.rows if self._restore(request, row)])
            return None
        context = {
            **self.admin_site.each_context(request),
            **self.confirmation(selection),
            "title": _("Restore"),
            "opts": self.opts,
            "what_is_restored": self.what_is_restored,
            "is_action": True,
        }
        return TemplateResponse(request, "admin/trash/restore_confirmation.html", context)

    @admin.action(description=gettext_lazy("Purge selected %(verbose_name_plural)s for good"), permissions=["purge"])
    def purge_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Ask for confirmation, then remove rows of the trash with everything in them."""
        # Fewer than other actions, because a purge looks into every table.
        selection = self.selection(request, queryset, most=self.list_per_page, role=Role.OWNER)
        if request.POST.get("post"):
            self._purge(request, selection.rows)
            return None
        context = {
            **self.admin_site.each_context(request),
            **self.confirmation(selection),
            "title": _("Purge for good"),
            "opts": self.opts,
            "is_action": True,
        }
        return TemplateResponse(request, "admin/trash/purge_confirmation.html", context)

    def _purge(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        purge_row, purged = type(self).purge_row, 0
        assert purge_row is not None, "see has_purge_permission"
        for row in rows:
            # Read whole now: the log needs its name when the row is gone.
            logged = self.model.with_deleted.filter(pk=row.pk)
            # A row that was restored meanwhile is not in the trash any more, so it stays.
            if logged and purge_row(row.pk):
                self.log_deletions(request, logged)
                self.note(row, AuditAction.PURGE)
                purged += 1
        text = ngettext("%(count)d %(rows)s was purged.", "%(count)d %(rows)s were purged.", purged)
        words = {"count": purged, "rows": model_ngettext(self.opts, purged)}
        self.message_user(request, text % words, messages.SUCCESS if purged else messages.INFO)

    def _restore(self, request: HttpRequest, row: Any) -> bool:
        try:
            type(self).restore_row(row.pk)
        except NotFound as error:
            self.message_user(request, f"{self.row_name(row)}: {error.message}", messages.ERROR)
            return False
        self.log_change(request, row, RESTORED)
        self.note(row, AuditAction.RESTORE)
        return True

    def _report_restored(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        if len(rows) == 1:
            link = format_html('<a href="{}"><bdi>{}</bdi></a>', self.url_of(rows[0].pk), self.row_name(rows[0]))
            text: str = format_html(_("“%(name)s” was restored.") % {"name": "{}"}, link)
        elif rows:
            text = _("%(count)d %(rows)s were restored.") % {
                "count": len(rows),
                "rows": model_ngettext(self.opts, len(rows)),
            }
        else:
            return
        self.message_user(request, text, messages.SUCCESS)

    def _report_deleted(self, request: HttpRequest, text: str, keys: Sequence[Any]) -> None:
        # The button belongs to the form "undo" of base_site.html, which has the CSRF token.
        button = format_html(
            '<button type="submit" form="undo" formaction="{}" name="rows" value="{}">{}</button>',
            *(reverse(f"admin:{self._url_name('undo')}"), ",".join(map(str, keys)), _("Undo")),
        )
        self.message_user(request, format_html("{} {}", text, button), messages.SUCCESS)

    # --- Deletions by the writes instead of the ORM -----------------------------------------------------------

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        try:
            type(self).delete_row(obj.pk, by=request.user.get_username())
        except NotFound:
            # Another user has deleted it meanwhile.
            return
        self.note(obj, AuditAction.DELETE)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: Any) -> HttpResponse:
        # Django would redirect to the index, because it returns only users with the change permission to the list.
        self._report_deleted(request, _("“%(name)s” was moved to the trash.") % {"name": obj_display}, [obj_id])
        return HttpResponseRedirect(self.url_after_delete(request, obj_id))

    def url_after_delete(self, request: HttpRequest, key: Any) -> str:
        """Return the URL of the list, with the filters and the search that it had."""
        kept: dict[str, Any] = {"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}
        return str(add_preserved_filters(kept, reverse(f"admin:{self._url_name('changelist')}")))

    def get_deleted_objects(
        self, objs: Iterable[Any], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return the rows to name in the confirmation. Django would collect (and count) all rows below them."""
        names = [self.row_name(row) for row in objs]
        return names, {str(self.opts.verbose_name_plural): len(names)}, set(), []

    # --- Columns of the trash ---------------------------------------------------------------------------------

    @admin.display(description=with_zone(gettext_lazy("deleted at")))
    def deleted(self, row: Any) -> SafeString:
        return moment(row.deleted_at)

    @admin.display(description=gettext_lazy("deleted by"))
    def deleter(self, row: Any) -> SafeString:
        return visible(one_line(row.deleted_by, 80))

    @admin.display(description=with_zone(gettext_lazy("purged from")))
    def purged(self, row: Any) -> SafeString:
        return moment(purged_from(row))

    def trash_columns(self, request: HttpRequest) -> list[Any]:
        """Return the columns of the trash behind the name, where phones show them: a button to restore the row, and when it is
        purged if that is set."""

        @admin.display(description="")
        def restore(row: Any) -> SafeString:
            if reason := self.not_restorable(row):
                return reason
            # The button belongs to the form of keyset_change_list.html, which has the CSRF token.
            url = reverse(f"admin:{self._url_name('undo')}", query={"back": request.get_full_path()})
            return format_html(
                '<button type="submit" form="restore-row" formaction="{}" name="rows" value="{}" class="row-button">{}'
                '<span class="visually-hidden"> {}</span></button>',
                *(url, row.pk, _("Restore"), self.row_name(row)),
            )

        return [restore, *(["purged"] if conf.TRASH_DAYS or some_have_days() else [])]

    def not_restorable(self, row: Any) -> SafeString | None:
        """Return the reason why a row of the trash cannot be restored, or None."""
        return None

    # --- Permissions ----------------------------------------------------------------------------------------

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allows(request, Role.EDITOR, obj) and (obj is None or obj.deleted_at is None)

    def has_restore_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allows(request, Role.EDITOR, obj)

    def has_purge_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.purge_row is not None and self.allows(request, Role.OWNER, obj)

    def field_name(self, name: str) -> str:
        """Return the display name of a column."""
        field = self.opts.get_field(name)
        assert isinstance(field, Field), f"{name} is a column"
        return str(field.verbose_name)

    def _url_name(self, view: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{view}"
