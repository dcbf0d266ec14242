"""Admin of projects and API keys. Keys are revoked and projects stay, so nothing is deleted here."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.audit.changes import changes_of, note_changes
from access_app.audit.trail import Actor, actor_of
from access_app.db import PEOPLE_ARE_HERE, primary
from access_app.people import gone, with_people
from access_app.projects import add_project, project_changed

from .admin_roles import RoleAdmin
from .errors import Conflict, InvalidInput
from .key_forms import KeyForm, NewKeyForm, OverlapForm, made_before, note_made
from .keys import create_key, forget_api_keys, revoke_key, rotate_key
from .masking import MOST_RULES, check_masking, forget_masking, record_rule
from .models import (
    ApiKey,
    AuditAction,
    KeptStatus,
    MaskingRule,
    Membership,
    Project,
    Role,
    Scope,
)
from .moments import ago, moment
from .project_words import words_of_empty_trash_days, words_of_retention, words_of_sampling
from .retention import DAYS_FIELDS, EXCEPTION_FIELDS
from .roles import ROLE_WORDS, access, grant_role, is_owned, record_role, suggested_groups, suggested_users
from .shares_field import SharesField
from .suggestions import SuggestingInput
from .visibility import visible_to

if TYPE_CHECKING:
    ProjectModelForm = forms.ModelForm[Project]
    MaskingRuleModelForm = forms.ModelForm[MaskingRule]
    Members = admin.TabularInline[Membership, Project]
    MembershipModelForm = forms.ModelForm[Membership]
    MembershipFormSet = BaseInlineFormSet[Membership, Any, forms.ModelForm[Membership]]
    MaskingRules = admin.TabularInline[MaskingRule, Project]
    NameField = forms.ModelChoiceField[models.Model]
else:  # not generic at run time
    ProjectModelForm = MembershipModelForm = MaskingRuleModelForm = forms.ModelForm
    NameField, MembershipFormSet = forms.ModelChoiceField, BaseInlineFormSet
    Members = MaskingRules = admin.TabularInline

STATUS_LABELS = {
    "active": gettext_lazy("active"),
    "expired": gettext_lazy("expired"),
    "revoked": gettext_lazy("revoked"),
}


class ProjectForm(ProjectModelForm):
    sampling_tools = SharesField(
        label=gettext_lazy("Tool sampling rates"),
        required=False,
        help_text=gettext_lazy("Share of the calls of a tool to record. All calls of other tools are recorded."),
    )
    keep_statuses = forms.MultipleChoiceField(
        label=gettext_lazy("Keep sessions with a status"),
        choices=KeptStatus.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )

    class Meta:
        model = Project
        fields = "__all__"


class TypedName(NameField):
    """A user or group, whose name is typed in: owners of a project need not see the names of all."""

    widget = SuggestingInput
    default_error_messages: ClassVar = {"invalid_choice": gettext_lazy("There is no user or group with this name.")}


class OfProject:
    """A form in a table on the page of a project.

    Django leaves the project out when it checks the constraints of such a form. So what somebody else has added since the page
    was opened would be an error of the database.
    """

    def validate_unique(self: Any) -> None:
        super().validate_unique()  # type: ignore[misc] # mixin
        if not self.errors:
            try:
                self.instance.validate_constraints()
            except ValidationError as error:
                self.add_error(None, error)


class ShownName(forms.Widget):
    """A name as text."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return format_html("<bdi>{}</bdi>", "" if value is None else value)


class MembershipForm(OfProject, MembershipModelForm):
    """A member of a project. Who it is stays, because the role of somebody else is another one."""

    class Meta:
        model = Membership
        fields = ("user", "group", "role")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None:
            return
        for name in ("user", "group"):
            self.fields[name] = forms.Field(
                label=self.fields[name].label, required=False, disabled=True, widget=ShownName
            )
            self.initial[name] = getattr(self.instance, name)


class OfOwners:
    """Rows of a project that only its owners see, on its page or on one of another object."""

    template = "admin/access_app/inline_table.html"
    add_text: ClassVar[str | Promise]
    """Of the button that adds a row."""

    def formfield_for_dbfield(
        self, db_field: models.Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> forms.Field | None:
        """Return the field with a label of its own: in a table of forms, Django names only the columns."""
        field: forms.Field | None = super().formfield_for_dbfield(db_field, request, **kwargs)  # type: ignore[misc] # mixin
        if field is not None:
            field.widget.attrs["aria-label"] = str(field.label)
        return field

    def get_extra(self, request: HttpRequest, obj: Project | None = None, **kwargs: Any) -> int:
        """Return an empty row only if the address asks for it: who has no JavaScript gets no row by a button."""
        return int(request.GET.get("add") == self.opts.model_name)  # type: ignore[attr-defined] # mixin

    def has_view_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return access(request).allows(Role.OWNER, obj.pk if isinstance(obj, Project) else None)

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return self.has_view_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return self.has_view_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return self.has_view_permission(request, obj)


class RolesFormSet(MembershipFormSet):
    """Memberships of which an owner cannot take the last owner of a project away, which would lock all of its people out."""

    needs_owners: ClassVar[bool] = True
    """Whether that is refused: superusers own every project, so they can give the role again."""

    def clean(self) -> None:
        super().clean()
        if not self.needs_owners or any(self.errors):
            return
        kept = [form for form in self.forms if not form.cleaned_data.get("DELETE")]
        stays = {form.instance.project_id for form in kept if form.has_changed() and is_owned([form.instance])}
        is_refused = False
        for form in self.initial_forms:
            if form.initial["role"] != Role.OWNER or (form in kept and form.instance.role == Role.OWNER):
                continue
            project_id = form.instance.project_id
            # Of owners who take the role from each other at the same time, the second one waits and is refused.
            Project.objects.select_for_update().get(pk=project_id)
            changed = [row.instance.pk for row in self.initial_forms if row.has_changed()]
            others = Membership.objects.filter(project=project_id).exclude(pk__in=changed)
            if project_id not in stays and not is_owned(with_people(others, "user")):
                form.add_error(None, _("The project needs an owner: give somebody else this role first."))
                is_refused = True
        if is_refused:
            # Django leaves out the errors of rows that are to be removed.
            raise ValidationError(_("The roles were not changed."))


class MembersTable(OfOwners, Members):
    """A table of memberships."""

    model = Membership
    formset = RolesFormSet

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        formset: Any = super().get_formset(request, obj, **kwargs)
        formset.needs_owners = not request.user.is_superuser
        return formset

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the field with roles in one word, which a phone has room for; the notes say what they may do."""
        kwargs["choices"] = [("", _("Choose a role")), *ROLE_WORDS.items()]
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def notes(self) -> str:
        return " · ".join(str(label) for label in Role.labels)


class MembershipInline(MembersTable):
    """Members of a project, shown to its owners."""

    form = MembershipForm
    fields = ("user", "group", "role")
    add_text = gettext_lazy("Add a member")
    verbose_name = gettext_lazy("member")
    verbose_name_plural = gettext_lazy("members")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        rows = with_people(super().get_queryset(request), "user", "group")
        if PEOPLE_ARE_HERE:
            return rows
        return rows.exclude(user__in=gone(rows, "user")).exclude(group__in=gone(rows, "group"))

    def formfield_for_dbfield(
        self, db_field: models.Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> forms.Field | None:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(field, forms.ModelChoiceField) and db_field.name == "group":
            field.label = _("or group")
        if isinstance(field, forms.ModelChoiceField) and not request.user.is_superuser:
            field = TypedName(
                field.queryset,
                to_field_name="username" if db_field.name == "user" else "name",
                required=False,
                label=field.label,
            )
            field.widget.attrs["aria-label"] = str(field.label)
        return field

    def get_formset(self, request: HttpRequest, obj: Project | None = None, **kwargs: Any) -> Any:
        formset = super().get_formset(request, obj, **kwargs)
        for name, suggest in (("user", suggested_users), ("group", suggested_groups)):
            field = formset.form.base_fields.get(name)
            if obj is not None and isinstance(field, TypedName):
                field.widget.suggest = partial(suggest, access(request), obj)
        return formset


class MaskingRuleForm(OfProject, MaskingRuleModelForm):
    class Meta:
        model = MaskingRule
        fields: ClassVar[tuple[str, ...]] = ("name", "kind", "value", "when", "enabled")
        error_messages: ClassVar = {
            "name": {
                "invalid": gettext_lazy(
                    "The name of a masking rule may have the letters a to z, digits, - and _, but no spaces: order-number."
                )
            }
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The names of presets, which the page lists: other kinds have free texts.
        self.fields["value"].widget.attrs["list"] = "masking-presets"

    def clean(self) -> dict[str, Any] | None:
        fields = super().clean()
        if fields and fields.get("kind") and fields.get("value"):
            check_masking(fields["kind"], fields["value"])
        return fields


class MaskingRuleInline(OfOwners, MaskingRules):
    """Masking rules of a project, shown to its owners. The form checks them."""

    model = MaskingRule
    form = MaskingRuleForm
    add_text = gettext_lazy("Add a masking rule")
    max_num = MOST_RULES


@admin.register(Project)
class ProjectAdmin(RoleAdmin):
    project_path = "pk"
    change_role = Role.OWNER
    form = ProjectForm
    inlines = (MembershipInline, MaskingRuleInline)
    list_display = ("title", "members", "masking", "kept", "created")
    empty_value_display = "—"
    search_fields = ("slug", "name")
    fieldsets = (
        (None, {"fields": ("name", ("slug", "created_at", "encryption"))}),
        (
            gettext_lazy("Recorder sampling"),
            {
                "classes": ("collapse",),
                "fields": (
                    *("sampling_rate", "sampling_tools", "sampling_keep_errors"),
                    "sampling_keep_slower_than_ms",
                ),
                "description": gettext_lazy(
                    "Recorders apply changes within a minute, without a restart. What is left out is "
                    "counted and shown in the trace."
                ),
            },
        ),
        (
            gettext_lazy("Retention"),
            {
                "classes": ("collapse",),
                "fields": (*DAYS_FIELDS, *EXCEPTION_FIELDS),
                "description": gettext_lazy(
                    "Once a day, what is older than these days is removed for good; saving removes nothing yet. Sessions that "
                    "are kept below stay with all of their messages, unless somebody deletes them: the trash keeps nothing longer."
                ),
            },
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Project | None = None) -> Any:
        """Return the sections, the closed ones with what is set in them, so that nobody opens one to know."""
        project = obj or Project()
        names, sampling, retention = super().get_fieldsets(request, obj)
        return [
            names if obj else (None, {"fields": ("name", "slug")}),
            with_words(sampling, words_of_sampling(project)),
            with_words(retention, words_of_retention(project)),
        ]

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in ("retention_days", "trash_days"):
            kwargs["min_value"] = 1  # Django's own is 0, which the validators of the model refuse
        if db_field.name == "trash_days":
            kwargs["help_text"] = words_of_empty_trash_days()
        if db_field.name == "retention_way":
            kwargs["help_text"] = _(
                "Exact: each message goes on the day on which it is too old. Whole periods: a day, week or month goes at "
                "once when all of it is too old, so later, which gives the space on the disk back."
            )
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        # A changed slug would break clients, because requests name the project by it.
        return ("created_at", "encryption") if obj is None else ("slug", "created_at", "encryption")

    def get_prepopulated_fields(self, request: HttpRequest, obj: Project | None = None) -> dict[str, Any]:
        return {"slug": ("name",)} if obj is None else {}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        """Return the projects with the numbers of their members and masking rules, which only owners see."""

        def counted(rows: QuerySet[Any]) -> Coalesce:
            of_project = rows.order_by().filter(project=OuterRef("pk")).values("project")
            return Coalesce(Subquery(of_project.annotate(number=models.Count("pk")).values("number")), 0)

        owned = visible_to(Project.objects.filter(pk=OuterRef("pk")), access(request).scope(Role.OWNER), "pk")
        projects: QuerySet[Project] = super().get_queryset(request)
        return projects.annotate(
            is_owned=Exists(owned),
            member_count=counted(Membership.objects.all()),
            rule_count=counted(MaskingRule.objects.all()),
        )

    @admin.display(description=gettext_lazy("name"), ordering="slug")
    def title(self, project: Project) -> str | SafeString:
        if not project.name:
            return project.slug
        return format_html('<bdi>{}</bdi> <span class="quiet">{}</span>', project.name, project.slug)

    @admin.display(description=gettext_lazy("members"), ordering="member_count")
    def members(self, project: Project) -> str:
        """Return the number of users and groups with a role, with the way to them."""
        return _to_table(project, "memberships", project.member_count)  # type: ignore[attr-defined]  # annotated

    @admin.display(description=gettext_lazy("masking rules"), ordering="rule_count")
    def masking(self, project: Project) -> str:
        return _to_table(project, "masking_rules", project.rule_count)  # type: ignore[attr-defined]  # annotated

    @admin.display(description=gettext_lazy("retention"))
    def kept(self, project: Project) -> str:
        return words_of_retention(project)

    @admin.display(description=gettext_lazy("created"), ordering="created_at")
    def created(self, project: Project) -> SafeString:
        return ago(project.created_at)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.is_superuser

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().add_view(request, form_url, extra_context)
        except Conflict as error:  # of `place`
            self.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.path)

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        if change:
            note_changes(actor_of(request), obj, form)
            super().save_model(request, obj, form, change)
            project_changed(obj)
        else:
            add_project(obj)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        actor = actor_of(request)
        if formset.model is MaskingRule:
            for rule in formset.new_objects:
                record_rule(AuditAction.CREATE, actor, rule)
            changes = {form.instance.pk: changes_of(form) for form in formset.initial_forms}
            for rule, _fields in formset.changed_objects:
                record_rule(AuditAction.CHANGE, actor, rule, changes[rule.pk])
            for rule in formset.deleted_objects:
                record_rule(AuditAction.DELETE, actor, rule)
            primary.on_commit(forget_masking)
            return
        record_members(actor, formset)


def record_members(actor: Actor | None, formset: Any) -> None:
    """Record the roles that a saved table of memberships has granted and revoked. Users with a role become staff."""
    before = {form.instance.pk: form.initial.get("role", "") for form in formset.initial_forms}
    for membership in (*formset.new_objects, *(changed for changed, _fields in formset.changed_objects)):
        member, role = membership.user or membership.group, Role(membership.role)
        grant_role(membership.project, member, role, actor=actor, before=before.get(membership.pk, ""))
    for form in formset.deleted_forms:
        membership = form.instance
        member = membership.user or membership.group
        record_role(AuditAction.ROLE_REVOKE, actor, membership.project, member, before=form.initial.get("role", ""))


def _to_table(project: Project, table: str, count: int) -> str:
    """Return the number of rows in a table of the page of a project as a link to it; "" for those who do not see it."""
    if not project.is_owned:  # type: ignore[attr-defined]  # annotated above
        return ""
    url = reverse("admin:access_app_project_change", args=[project.pk])
    return format_html('<a href="{}#{}-heading">{}</a>', url, table, count)


def with_words(section: Any, words: str) -> Any:
    """Return a section of a form with words behind its name."""
    name, options = section
    return format_html('{} <span class="quiet">{}</span>', name, words), options


@admin.register(ApiKey)
class ApiKeyAdmin(RoleAdmin):
    view_role = add_role = change_role = Role.OWNER
    form = KeyForm
    list_display = (*("name", "project", "prefix", "scope_list", "status", "used", "created", "expires", "revoke"),)
    sortable_by = list_display
    empty_value_display = "—"
    list_filter = (("project", admin.RelatedOnlyFieldListFilter),)
    ordering = (models.F("revoked_at").desc(nulls_first=True), "-id")
    search_fields = ("name", "prefix")
    actions = ("rotate_selected", "revoke_selected")

    # --- One key ----------------------------------------------------------------------------------------------

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether a key, or any, may be changed: nothing of a revoked one counts any more."""
        return (obj is None or obj.revoked_at is None) and super().has_change_permission(request, obj)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **(kwargs if change else {**kwargs, "form": NewKeyForm}))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "project":
            projects = visible_to(Project.objects.all(), access(request).scope(Role.OWNER), "pk")
            kwargs |= {"queryset": projects, "initial": projects.first() if len(projects[:2]) == 1 else None}
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[Any, ...]:
        if obj is None:
            return NewKeyForm.Meta.fields
        return (
            *("name", ("status", "used", "expires", "created"), ("project", "prefix", "scope_list")),
            *("allowed_networks", "requests_per_minute", "is_masked"),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return ()
        return ("project", "prefix", "scope_list", "is_masked", "status", "used", "created", "expires")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            note_changes(actor_of(request), obj, form)
            super().save_model(request, obj, form, change)
            primary.on_commit(forget_api_keys)
            return
        assert request.user.is_authenticated, "the admin lets nobody else in"
        key, token = create_key(
            obj.project,
            obj.name,
            form.cleaned_data["scopes"],
            expires_at=form.expires_at,
            created_by=request.user,
            allowed_networks=obj.allowed_networks,
            requests_per_minute=obj.requests_per_minute,
            reads_masked=obj.reads_masked,
            actor=actor_of(request),
        )
        obj.pk = key.pk
        obj.refresh_from_db()
        obj.token = token
        note_made(request, key)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return self._made_before(request) or super().add_view(request, form_url, extra_context)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Render the page with the token. A redirect would require storing the token until the next request."""
        return self._show_token(request, obj, obj.token)

    def _made_before(self, request: HttpRequest) -> HttpResponse | None:
        """Return the way to the key that this form has made already, if it has."""
        made = made_before(request)
        if made is None:
            return None
        text = _("This key was made already. Its token was shown once; rotate the key if you have not copied it.")
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(reverse("admin:access_app_apikey_change", args=[made]))

    def _show_token(
        self, request: HttpRequest, key: ApiKey, token: str, replaced: ApiKey | None = None
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("API key created"),
            "opts": self.opts,
            "key": key,
            "token": token,
            "replaced": replaced,
            "ends": replaced and moment(replaced.expires_at),
        }
        return TemplateResponse(request, "admin/access_app/apikey/created.html", context)

    # --- Many keys --------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        return with_people(super().get_queryset(request).select_related("project"), "created_by")

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns; without the project for readers who own one."""
        owned = visible_to(Project.objects.all(), access(request).scope(Role.OWNER), "pk")
        left_out = () if len(owned[:2]) > 1 else ("project",)
        return [name for name in self.list_display if name not in left_out]

    @admin.action(description=gettext_lazy("Revoke selected API keys"), permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Revoke keys after a confirmation page, because revoking is final."""
        if "confirmed" not in request.POST:
            context = {
                **self.admin_site.each_context(request),
                "title": _("Revoke API keys"),
                "opts": self.opts,
                "keys": queryset,
                "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
            }
            return TemplateResponse(request, "admin/access_app/apikey/revoke_confirmation.html", context)
        revoked = [key for key in queryset if revoke_key(key, actor=actor_of(request))]
        for key in revoked:
            self.log_change(request, key, [{"changed": {"fields": ["revoked at"]}}])
        count = len(revoked)
        text = ngettext("%(count)d API key was revoked.", "%(count)d API keys were revoked.", count) % {"count": count}
        self.message_user(request, text, messages.SUCCESS)
        return None

    @admin.action(description=gettext_lazy("Rotate selected API keys"), permissions=["change"])
    def rotate_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Replace one key: ask for the overlap, then show the token of its successor."""
        if seen := self._made_before(request):
            return seen
        keys = list(queryset[:2])
        if len(keys) != 1:
            self.message_user(
                request, _("Rotate one key at a time, because its token is shown once."), messages.WARNING
            )
            return None
        form = OverlapForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            context = {
                **self.admin_site.each_context(request),
                "title": _("Rotate an API key"),
                "opts": self.opts,
                "key": keys[0],
                "form": form,
                "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
            }
            return TemplateResponse(request, "admin/access_app/apikey/rotate_confirmation.html", context)
        assert request.user.is_authenticated, "the admin lets nobody else in"
        try:
            overlap = dt.timedelta(hours=form.cleaned_data["hours"])
            key, token = rotate_key(keys[0], overlap, created_by=request.user, actor=actor_of(request))
        except InvalidInput as error:
            self.message_user(request, error.message, messages.ERROR)
            return None
        self.log_change(request, keys[0], [{"changed": {"fields": ["expires at"]}}])
        self.log_addition(request, key, [{"added": {}}])
        note_made(request, key)
        return self._show_token(request, key, token, replaced=keys[0])

    # --- Columns ----------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("scopes"))
    def scope_list(self, key: ApiKey) -> str:
        return ", ".join(str(Scope(scope).label) for scope in key.scopes)

    @admin.display(description=gettext_lazy("reads masked values"))
    def is_masked(self, key: ApiKey) -> str:
        return _("yes") if key.reads_masked else _("no")

    @admin.display(description=gettext_lazy("status"))
    def status(self, key: ApiKey) -> str | SafeString:
        status = key.status()
        label = STATUS_LABELS[status]
        if key.revoked_at is not None:
            return format_html('<span class="badge">{}</span> {}', label, ago(key.revoked_at))
        return str(label) if status == "active" else format_html('<span class="badge badge-pending">{}</span>', label)

    @admin.display(description=gettext_lazy("last used"), ordering="last_used_at")
    def used(self, key: ApiKey) -> SafeString:
        if key.last_used_at is None:
            return format_html('<span class="quiet">{}</span>', _("never"))
        return ago(key.last_used_at)

    @admin.display(description=gettext_lazy("created"), ordering="created_at")
    def created(self, key: ApiKey) -> SafeString:
        """Return when, and by whom if that is known: commands have no login."""
        if key.created_by is None:
            return ago(key.created_at)
        return format_html(_("{when} by {user}"), when=ago(key.created_at), user=key.created_by)

    @admin.display(description=gettext_lazy("expires"), ordering="expires_at")
    def expires(self, key: ApiKey) -> SafeString:
        if key.revoked_at is not None:
            return SafeString("")  # it works no longer
        return moment(key.expires_at) if key.expires_at else format_html('<span class="quiet">{}</span>', _("never"))

    @admin.display(description="")
    def revoke(self, key: ApiKey) -> SafeString:
        """Return the button that asks about this key as the action of the list does."""
        if key.revoked_at is not None:
            return SafeString("&nbsp;")  # an empty text would be a dash
        return format_html(
            '<button type="submit" form="of-one" name="_selected_action" value="{}" class="quiet-button" aria-label="{}">{}</button>',
            key.pk,
            _("Revoke %(key)s") % {"key": key},
            _("Revoke"),
        )
