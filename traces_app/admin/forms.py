"""The forms that add sessions, messages and tags. What they add passes through `ingest` like all data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.db import Database, primary
from access_app.errors import ApiError, Conflict, NotFound
from access_app.visibility import NO_PROJECTS
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message, Session
from messages_app.queries import find_session
from traces_app.ingest.batch import Refusal
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_session_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES

if TYPE_CHECKING:
    SessionModelForm = forms.ModelForm[Session]
    MessageModelForm = forms.ModelForm[Message]
    SessionChoiceField = forms.ModelChoiceField[Session]
else:
    SessionModelForm = MessageModelForm = forms.ModelForm  # not generic at run time
    SessionChoiceField = forms.ModelChoiceField

NAME_LENGTH = 512
"""Maximum length of external ids and end users, as in records.Name."""

REFUSALS: Mapping[Refusal, Any] = {
    "session_deleted": gettext_lazy("The session is in the trash. Restore it first."),
    "session_purged": gettext_lazy("The session was purged. Use another external ID."),
    "message_deleted": gettext_lazy("The message is in the trash. Restore it, or use another external ID."),
    "message_purged": gettext_lazy("The message was purged. Use another external ID."),
    "message_completed": gettext_lazy("The message is completed and accepts no more steps."),
}


class FormOnce(forms.CharField):
    """A hidden name of the filled-in form: sent again, as by a double click, it adds no second row."""

    def __init__(self) -> None:
        super().__init__(initial=lambda: f"form-{uuid4()}", max_length=50, required=False, widget=forms.HiddenInput)


class SessionForm(SessionModelForm):
    form_name = FormOnce()
    external_id = forms.CharField(label=gettext_lazy("External ID"), max_length=NAME_LENGTH, required=False)
    title = forms.CharField(label=gettext_lazy("Title"), max_length=NAME_LENGTH, required=False)
    end_user = forms.CharField(label=gettext_lazy("End user"), max_length=NAME_LENGTH, required=False)
    tags = SimpleArrayField(
        forms.CharField(max_length=200),
        label=gettext_lazy("Tags"),
        required=False,
        help_text=gettext_lazy("Separated by commas."),
    )

    db = primary
    """The database of the request: see SessionAdmin.get_form."""

    class Meta:
        model = Session
        fields = ("form_name", "project", "external_id", "title", "description", "end_user", "tags")

    def clean(self) -> dict[str, Any]:
        fields = self.cleaned_data
        if fields.get("external_id") and fields.get("project"):
            same = self.db.rows(Session.with_deleted).filter(
                project=fields["project"], external_id=fields["external_id"]
            )
            if same.exists():
                self.add_error(
                    "external_id", _("The project already has a session with this external ID. It may be in the trash.")
                )
        return fields


class SessionField(SessionChoiceField):
    """A session that is typed in, by its id or external id."""

    scope = NO_PROJECTS
    """The projects in which it is looked up: see MessageAdmin.get_form."""

    def to_python(self, value: Any) -> Session | None:
        if value in self.empty_values:
            return None
        try:
            assert self.queryset is not None, "it has one from the beginning"
            found = find_session(Database.of(self.queryset), self.scope, str(value).strip())
        except NotFound as error:
            text = _("There is no session with the ID or external ID “%(name)s”.")
            raise ValidationError(text, params={"name": value}) from error
        except Conflict as error:
            raise ValidationError(error.message) from error
        return super().to_python(found.pk)


class MessageForm(MessageModelForm):
    form_name = FormOnce()
    session = SessionField(
        Session.objects.all(),
        label=gettext_lazy("Session ID"),
        widget=forms.TextInput(attrs={"size": 40}),
        help_text=gettext_lazy("The ID or external ID of a session. The message is added at its end."),
    )
    external_id = forms.CharField(label=gettext_lazy("External ID"), max_length=NAME_LENGTH, required=False)

    db = primary
    """The database of the request: see MessageAdmin.get_form."""

    class Meta:
        model = Message
        fields = ("form_name", "session", "role", "content", "external_id")

    def clean(self) -> dict[str, Any]:
        fields = self.cleaned_data
        if fields.get("external_id") and fields.get("session"):
            same = self.db.rows(Message.with_deleted).filter(
                session=fields["session"], external_id=fields["external_id"]
            )
            if same.exists():
                self.add_error(
                    "external_id", _("The session already has a message with this external ID. It may be in the trash.")
                )
        return fields


class TagForm(forms.Form):
    """The tag that is added to sessions."""

    tag = forms.CharField(max_length=200)

    def clean_tag(self) -> str:
        tag: str = self.cleaned_data["tag"]
        if redact_session_patch(records.SessionPatch(tags=[tag]), DEFAULT_RULES).receipts:
            raise ValidationError(_("This looks like a secret, which tags must not have."))
        return tag


def add_by_ingest(
    model_admin: KeysetAdmin,
    request: HttpRequest,
    add_view: Callable[[HttpRequest, str, dict[str, Any] | None], HttpResponse],
    form_url: str,
    extra_context: dict[str, Any] | None,
) -> HttpResponse:
    """Show Django's page that adds a row. `save_model` stores by `ingest`, which may refuse what the form accepted."""
    try:
        return add_view(request, form_url, extra_context)
    except ApiError as error:
        model_admin.message_user(request, error.message, messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())
