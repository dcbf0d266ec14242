"""Admin of what can be deleted and brought back: deleting asks and fills the trash, the trash lists who and when and
restores. Nothing is removed for good here; the purge command does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.actions import delete_selected as ask_to_delete_selected
from django.contrib.admin.utils import model_ngettext, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Field, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.errors import NotFound

from .keyset_admin import KeysetAdmin
from .visible_text import moment, one_line, visible

# What the log of an admin's actions says of a restored row; pages translate it.
RESTORED = "Restored"


class TrashAdmin(KeysetAdmin):
    """An admin of a model with `objects` (alive), `with_deleted`, `deleted_at` and `deleted_by`."""

    delete_confirmation_template = "admin/trash/delete_confirmation.html"
    delete_selected_confirmation_template = "admin/trash/delete_selected_confirmation.html"
    actions = ("delete_selected", "restore_selected")

    delete_row: ClassVar[Callable[..., None]]
    """The write that deletes: (primary key, by=user name); raises NotFound when there is nothing to delete."""
    restore_row: ClassVar[Callable[..., None]]
    """The write that restores: (primary key); raises NotFound when there is nothing to restore."""

    page_related: Sequence[str] = ("project",)
    """What `get_object` loads beside the row."""

    # --- Which rows -----------------------------------------------------------------------------------------

    def in_trash(self, request: HttpRequest) -> bool:
        match = request.resolver_match
        return match is not None and match.url_name == self._url_name("trash")

    def rows(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows of the list: those in the trash, or those that are alive."""
        if self.in_trash(request):
            # What was deleted by itself: a message of a deleted session comes back with its session.
            trash: QuerySet[Any] = self.model.with_deleted.filter(deleted_at__isnull=False)
            return trash
        alive: QuerySet[Any] = self.model.objects.all()
        return alive

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Also what is deleted: its page offers to restore it."""
        try:
            return self.model.with_deleted.select_related(*self.page_related).filter(pk=UUID(object_id)).first()
        except ValueError:
            return None

    # --- Pages ----------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("trash/", wrap(self.changelist_view), name=self._url_name("trash")),
            path("<path:object_id>/restore/", wrap(self.restore_view), name=self._url_name("restore")),
            *super().get_urls(),
        ]

    def list_title(self, request: HttpRequest) -> str:
        title = super().list_title(request)
        return _("Trash: %(rows)s") % {"rows": title} if self.in_trash(request) else title

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"in_trash": self.in_trash(request), "trash_url": reverse(f"admin:{self._url_name('trash')}")}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks on GET, restores on POST."""
        row = self.get_object(request, unquote(object_id))
        if not self.has_restore_permission(request):
            raise PermissionDenied
        if row is None:
            return self.missing(request)
        if request.method == "POST":
            if self._restore(request, row):
                self.message_user(
                    request, _("“%(name)s” was restored.") % {"name": self.row_name(row)}, messages.SUCCESS
                )
            return HttpResponseRedirect(reverse(f"admin:{self._url_name('change')}", args=[quote(row.pk)]))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Restore"),
            "opts": self.opts,
            "objects": [row],
            "names": [self.row_name(row)],
            "is_action": False,
        }
        return TemplateResponse(request, "admin/trash/restore_confirmation.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            for entry in response.context_data["action_list"]:
                # Django has no words for a deletion, since it shows no history of what it deleted.
                if entry.is_deletion():
                    entry.change_message = _("Deleted")
                elif entry.change_message == RESTORED:
                    entry.change_message = _("Restored")
        return response

    # --- Actions --------------------------------------------------------------------------------------------

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        offered = "restore_selected" if self.in_trash(request) else "delete_selected"
        return {name: action for name, action in super().get_actions(request).items() if name == offered}

    @admin.action(
        description=gettext_lazy("Move selected %(verbose_name_plural)s to the trash"), permissions=["delete"]
    )
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        if not request.POST.get("post"):
            return ask_to_delete_selected(self, request, queryset)
        chosen = queryset[: self.list_per_page]
        count = len(chosen)
        self.log_deletions(request, chosen)
        self.delete_queryset(request, chosen)
        text = ngettext("%(count)d %(rows)s is in the trash.", "%(count)d %(rows)s are in the trash.", count)
        words = {"count": count, "rows": model_ngettext(self.opts, count)}
        self.message_user(request, text % words, messages.SUCCESS)
        return None

    @admin.action(description=gettext_lazy("Restore selected %(verbose_name_plural)s"), permissions=["restore"])
    def restore_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        rows = list(queryset[: self.list_per_page])
        if request.POST.get("post"):
            count = sum(self._restore(request, row) for row in rows)
            if count:
                text = ngettext("%(count)d %(rows)s was restored.", "%(count)d %(rows)s were restored.", count)
                words = {"count": count, "rows": model_ngettext(self.opts, count)}
                self.message_user(request, text % words, messages.SUCCESS)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Restore"),
            "opts": self.opts,
            "objects": rows,
            "names": [self.row_name(row) for row in rows],
            "is_action": True,
            "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/trash/restore_confirmation.html", context)

    def _restore(self, request: HttpRequest, row: Any) -> bool:
        try:
            type(self).restore_row(row.pk)
        except NotFound as error:
            self.message_user(request, f"{self.row_name(row)}: {error.message}", messages.ERROR)
            return False
        self.log_change(request, row, RESTORED)
        return True

    # --- Deleting is a write, never the ORM's -----------------------------------------------------------------

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        try:
            type(self).delete_row(obj.pk, by=request.user.get_username())
        except NotFound:
            # Somebody else was quicker: it is in the trash, as asked.
            return

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: Any) -> HttpResponse:
        # Django would go to the index: it leads back to a list only those who may edit its rows.
        self.message_user(request, _("“%(name)s” is in the trash.") % {"name": obj_display}, messages.SUCCESS)
        return HttpResponseRedirect(self.url_after_delete(obj_id))

    def url_after_delete(self, key: Any) -> str:
        return reverse(f"admin:{self._url_name('changelist')}")

    def get_deleted_objects(
        self, objs: Iterable[Any], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """What the confirmation names: the rows. Django would collect (and count) everything below them."""
        names = [self.row_name(row) for row in objs]
        return names, {str(self.opts.verbose_name_plural): len(names)}, set(), []

    # --- Columns of the trash ---------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("deleted at (UTC)"))
    def deleted(self, row: Any) -> SafeString:
        return moment(row.deleted_at)

    @admin.display(description=gettext_lazy("deleted by"))
    def deleter(self, row: Any) -> SafeString:
        return visible(one_line(row.deleted_by, 80))

    # --- Permissions ----------------------------------------------------------------------------------------

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_view_permission(request) and (obj is None or obj.deleted_at is None)

    def has_restore_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def field_name(self, name: str) -> str:
        """The name of a column for people."""
        field = self.opts.get_field(name)
        assert isinstance(field, Field), f"{name} is a column"
        return str(field.verbose_name)

    def _url_name(self, view: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{view}"
