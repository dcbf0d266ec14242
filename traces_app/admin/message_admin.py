"""The admin of messages: that of traces_app.admin.model_admins with the runs of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.formats import localize
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.errors import Conflict, InvalidInput
from access_app.models import Role
from access_app.visibility import visible_to
from messages_app.admin.downloads import Source
from messages_app.admin.keyset import VALUE_CHARACTERS
from messages_app.models import Message
from messages_app.queries import as_uuid
from messages_app.safe_text import for_scripts, one_line, visible
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.purge.purging import purge_deleted_message
from traces_app.models import AgentStep
from traces_app.queries.contexts import InputsTooLarge
from traces_app.queries.schemas.similar_runs import SimilarBy
from traces_app.queries.seals import read_sealed_at
from traces_app.queries.waiting import waiting_calls
from tracesite_sdk import records
from tracesite_sdk.spans.conversation import TRACE_ID

from .bulk_scores import score_selected
from .compare_page import CompareForm, candidates, compare_selected, compared_runs
from .filters import (
    HealthFilter,
    MessageAgentFilter,
    MessageModelFilter,
    MessageScoreFilter,
    MessageToolFilter,
    MessageToolStatusFilter,
)
from .flag_labels import FLAG_LABELS, losses_of, problems_of
from .forms import REFUSALS, AddedByIngest, MessageForm, SessionField
from .input_page import read_input
from .model_admins import NAME_CHARACTERS, MessageAdmin, context_in_session, text_of
from .questions import MESSAGES_SEARCHED, last_good_run, question_before
from .run_outline import explorer_words, read_detail, read_first_rows, read_outline
from .run_page import first_failure, read_interrupts, read_run, read_tool_time, step_number, unpriced_models
from .run_search import MATCHES_LISTED, search_run
from .scores import JudgementForm, judge, judgements_of
from .similar_page import similar_context
from .span_page import spans_context
from .text_search import named_or_saying, with_found

FLAGS_LISTED = 5
"""Flags of one message in a list; the page of the message shows all."""


class TracedMessageAdmin(AddedByIngest, MessageAdmin):
    add_role = Role.EDITOR
    form = MessageForm
    purge_row = staticmethod(purge_deleted_message)
    actions = (*MessageAdmin.actions, compare_selected, score_selected)
    list_actions = (*MessageAdmin.list_actions, "compare_selected", "score_selected")
    search_help_text = gettext_lazy(
        'Search for words anywhere in messages, steps, calls and results ("exact phrase", -without, error:timeout), by message ID, '
        "external ID or request ID, or by session: ID, external ID, end user or title."
    )
    list_filter: ClassVar[Any] = (
        *MessageAdmin.list_filter[:5],
        *(HealthFilter, MessageToolFilter, MessageToolStatusFilter, MessageModelFilter, MessageAgentFilter),
        *MessageAdmin.list_filter[5:-1],
        *(MessageScoreFilter, MessageAdmin.list_filter[-1]),
    )
    all_columns: ClassVar[Any] = (
        *("text", "outcome", "problems", "named", "requested", "who", "in_session", "project", "steps", "calls"),
        *("tokens", "tokens_in", "tokens_out", "took", "spent", "created", "ended"),
    )
    list_display: Any = ("text", "outcome", "who", "in_session", "project", "calls", "took", "spent", "created")
    run_columns: ClassVar[Any] = ("question", "answer", *(name for name in all_columns if name not in ("text", "who")))
    """The columns of the list of runs: one knows a run by what was asked."""
    list_display_links = ("text", "question")
    api_searches = True
    page_template = "admin/traces_app/message_page.html"
    downloads: ClassVar[Any] = {
        **MessageAdmin.downloads,
        "step": Source(
            rows=AgentStep.with_deleted,
            columns=frozenset(["thought", "reasoning", "usage", "metadata"]),
            project="message__project_id",
        ),
    }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        named, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip()
        if not term or as_uuid(term) is not None or self.in_trash(request):
            return named, may_repeat
        return named_or_saying(request, queryset, named, term, "message", self.page_size(request)), False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if "question" not in self.get_list_display(request):
            return rows
        asked = question_before(OuterRef("session_id"), OuterRef("pk"), 4 * NAME_CHARACTERS)
        with_questions: QuerySet[Any] = rows.annotate(shown_question=Subquery(asked))
        return with_questions

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        shows_content = "text" in columns or "answer" in columns

        def says(row: Any) -> dict[str, str]:
            return {"content": one_line(row.shown_content, NAME_CHARACTERS)} if shows_content else {}

        return with_found(request, columns, rows, says)

    def known_columns(self, parameters: QueryDict) -> Sequence[str]:
        found: Sequence[str] = self.run_columns if _is_of_runs(parameters) else super().known_columns(parameters)
        return found

    def usual_columns(self, request: HttpRequest) -> Sequence[str]:
        usual = super().usual_columns(request)
        return ["answer", *usual, "tokens"] if _is_of_runs(request.GET) else usual

    def list_title(self, request: HttpRequest) -> str:
        return _("Runs") if _is_of_runs(request.GET) else super().list_title(request)

    def said_by_title(self, parameters: Mapping[str, str]) -> frozenset[str]:
        return frozenset(["role"]) if _is_of_runs(parameters) else frozenset()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # A message that is added by hand is no run.
        without_add = {"has_add_permission": False} if _is_of_runs(request.GET) else {}
        return super().changelist_view(request, {**without_add, **(extra_context or {})})

    @admin.display(description=gettext_lazy("question"))
    def question(self, row: Any) -> SafeString:
        asked = one_line(row.shown_question, NAME_CHARACTERS)
        return visible(asked) if asked else format_html('<span class="quiet">{}</span>', _("(no question)"))

    @admin.display(description=gettext_lazy("answer"))
    def answer(self, row: Any) -> SafeString:
        return text_of(row)

    @admin.display(description=gettext_lazy("health"), empty_value="")
    def problems(self, row: Message) -> SafeString | None:
        labels = ", ".join(str(FLAG_LABELS.get(flag, flag)) for flag in row.health[:FLAGS_LISTED])
        return visible(one_line(labels, NAME_CHARACTERS)) if labels else None

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        field = form.base_fields.get("session")  # of the class that Django makes for each request
        if isinstance(field, SessionField):
            field.scope = self.scope(request, Role.EDITOR)
        return form

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if "failure" in request.GET and (url := self._url_of_first_failure(request, object_id)):
            return HttpResponseRedirect(url)
        response = super().change_view(request, object_id, form_url, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            message = response.context_data["message"]
            response.context_data["problems"] = problems_of(message)
            response.context_data["missing"] = losses_of(message)
            wanted, page = request.GET.get("call", ""), request.GET.get("page", "")
            response.context_data["run"] = read_run(
                message.pk,
                page=int(page) if page.isdecimal() and len(page) < 6 else 1,
                call=as_uuid(wanted),
                open_all=request.GET.get("open") == "all",
            )
            if wanted and (as_uuid(wanted) is None or response.context_data["run"].lacks_wanted):
                text = _("Call “%(value)s” is not in this run.")
                self.message_user(request, text % {"value": one_line(wanted, VALUE_CHARACTERS)}, messages.WARNING)
            response.context_data["open_all"] = request.GET.get("open") == "all"
            if request.GET.get("q"):
                response.context_data["search"] = search_run(message.pk, request.GET["q"], MATCHES_LISTED)
            user = request.user.get_username()
            response.context_data["judged"] = judgements_of([message], user)[message.pk]
            response.context_data["may_edit"] = self.allows(request, Role.EDITOR, message)
            response.context_data["explorer_words"] = explorer_words()
            response.context_data["first_rows"] = asdict(read_first_rows(response.context_data["run"]))
            response.context_data["hidden"] = for_scripts()
            response.context_data["row_count"] = message.step_count + message.call_count
            session = message.session
            response.context_data["follows"] = not (message.is_completed or message.deleted_at or session.deleted_at)
            if response.context_data["waiting_words"]:
                response.context_data["waiting_calls"] = waiting_calls([message.pk]).get(message.pk, [])
                response.context_data["waits_for"] = read_interrupts(message.pk)
            response.context_data["has_spans"] = TRACE_ID in message.metadata
            response.context_data["sealed_at"] = read_sealed_at(message.pk) if message.is_completed else None
            if message.unpriced_count:
                response.context_data["unpriced_models"] = unpriced_models(message.pk)
            if message.step_count:
                response.context_data["tool_ms"] = read_tool_time(message.pk)
        return response

    def get_urls(self) -> list[URLPattern]:
        own = self.row_urls(
            "message_id",
            [
                ("outline/", self.outline_view, "outline"),
                ("outline/<uuid:node_id>/", self.detail_view, "detail"),
                ("search/", self.search_view, "search"),
                ("spans/", self.spans_view, "spans"),
                ("steps/<uuid:step_id>/input/", self.input_view, "input"),
                ("judge/", self.judge_view, "judge"),
                ("compare/", self.compare_view, "compare"),
                ("similar/", self.similar_view, "similar"),
            ],
        )
        return [*own, *super().get_urls()]

    def compare_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Show a run beside another one, or ask for the other one."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        scope = self.scope(request)
        runs = Message.with_deleted.visible_to(scope).select_related("session").filter(role=Message.Role.ASSISTANT)
        message = runs.filter(pk=message_id).first()
        if message is None:
            return self.missing(request)
        self.note(message)
        if "good" in request.GET:
            return self._compare_with_good(request, message)
        context = {
            **context_in_session(self, request, message.session, _("Compare runs")),
            "message": message,
            "form": CompareForm(scope, request.GET if "other" in request.GET else None),
        }
        if context["form"].is_valid():
            other = context["form"].cleaned_data["other"]
            self.note(other)
            context |= compared_runs(message, other)
        else:
            context |= candidates(message)
        return TemplateResponse(request, "admin/traces_app/compare_page.html", context)

    def _compare_with_good(self, request: HttpRequest, message: Message) -> HttpResponse:
        """Lead to the comparison with the last good run of the same question, or say that there is none and list good runs like this one.

        It is looked for when somebody asks, because each failed run would pay for it otherwise.
        """
        try:
            good = last_good_run(message)
        except InvalidInput:
            self.message_user(request, _("Finding a good run of the same question took too long."), messages.WARNING)
        else:
            if good is not None:
                return HttpResponseRedirect(f"{request.path}?other={good}")
            none = _("No good run answers exactly the same question (newest %(number)s messages).")
            self.message_user(request, none % {"number": localize(MESSAGES_SEARCHED)}, messages.INFO)
            if not message.deleted_at and not message.session.deleted_at:
                return HttpResponseRedirect(
                    f"{reverse('admin:messages_app_message_similar', args=[message.pk])}?by=good"
                )
        return HttpResponseRedirect(request.path)

    def similar_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """List the runs that are most like a run, or that failed in the same way."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alive = Message.objects.visible_to(self.scope(request))
        runs = alive.select_related("session").filter(role=Message.Role.ASSISTANT)
        message = runs.filter(pk=message_id).first()
        if message is None:
            return self.missing(request)
        self.note(message)
        asked = request.GET.get("by")
        by: SimilarBy = "errors" if asked == "errors" else "everything"
        titles = {"errors": _("Failures like this one"), "good": _("Good runs like this one")}
        title = titles.get(asked or "", _("Runs like this one"))
        context = {
            **context_in_session(self, request, message.session, title),
            "message": message,
            **similar_context(message, by, only_good=asked == "good"),
        }
        return TemplateResponse(request, "admin/traces_app/similar_page.html", context)

    def judge_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Store the thumb and the note of the reader, and return to the page where they were given."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        message = Message.objects.visible_to(self.scope(request)).filter(pk=message_id).first()
        if message is None:
            return self.missing(request)
        if not self.allows(request, Role.EDITOR, message):
            raise PermissionDenied
        form = JudgementForm(request.POST)
        if form.is_valid():
            judge(message, request.user.get_username(), form.cleaned_data["thumb"], form.cleaned_data["comment"])
        else:
            for errors in form.errors.values():
                self.message_user(request, str(errors[0]), messages.ERROR)
        back = request.POST.get("back", "")
        if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
            back = reverse("admin:messages_app_message_change", args=[quote(message_id)])
        return HttpResponseRedirect(f"{back.partition('#')[0]}#scores-{message_id}")

    def outline_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Send the outline of a run as JSON."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if not self.sees(request, message_id):
            raise Http404
        return HttpResponse(msgspec.json.encode(read_outline(message_id)), content_type="application/json")

    def search_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Send the steps and calls of a run that have the terms of `q` as JSON.

        A fault of the query is in the answer, because browsers log other statuses as errors and the reader is still typing.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        if not self.sees(request, message_id):
            raise Http404
        found = search_run(message_id, request.GET.get("q", ""))
        return HttpResponse(msgspec.json.encode(found), content_type="application/json")

    def detail_view(self, request: HttpRequest, message_id: UUID, node_id: UUID) -> HttpResponse:
        """Send a step or call of a run with its payloads as JSON."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        detail = read_detail(message_id, node_id) if self.sees(request, message_id) else None
        if detail is None:
            raise Http404
        return HttpResponse(msgspec.json.encode(detail), content_type="application/json")

    def input_view(self, request: HttpRequest, message_id: UUID, step_id: UUID) -> HttpResponse:
        """Show what the model of a step was asked."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        steps = AgentStep.with_deleted.select_related("message__session").filter(message_id=message_id)
        readable = visible_to(steps, self.scope(request), "message__project_id")
        step = readable.exclude(input_ref="").filter(pk=step_id).first()
        if step is None:
            return self.missing(request)
        self.note(step.message)
        title = _("Model input of step %(number)s") % {"number": step_number(step)}
        asked, problem = None, ""
        try:
            asked = read_input(step)
        except InputsTooLarge as error:
            problem = error.message
        context = {
            **context_in_session(self, request, step.message.session, title),
            "step": step,
            "message": step.message,
            "input": asked,
            "problem": problem,
        }
        return TemplateResponse(request, "admin/traces_app/input_page.html", context)

    def spans_view(self, request: HttpRequest, message_id: UUID) -> HttpResponse:
        """Show the spans that a message was made of, with everything that they hold."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        readable = Message.with_deleted.visible_to(self.scope(request))
        message = readable.select_related("session").filter(pk=message_id).first()
        if message is None or TRACE_ID not in message.metadata:
            return self.missing(request)
        self.note(message)
        context = spans_context(self, request, message.session, message.request_id)
        return TemplateResponse(request, "admin/traces_app/spans_page.html", {**context, "message": message})

    def sees(self, request: HttpRequest, message_id: UUID) -> bool:
        """Return whether there is such a message in a project of the reader, in the trash or not."""
        message = Message.with_deleted.visible_to(self.scope(request)).only("project_id").filter(pk=message_id).first()
        if message is not None:
            self.note(message)
        return message is not None

    def _url_of_first_failure(self, request: HttpRequest, object_id: str) -> str | None:
        """Return the target of `?failure`, because lists know the number of failed calls but not their ids."""
        message = as_uuid(unquote(object_id))
        call = first_failure(message) if message is not None and self.sees(request, message) else None
        return f"{request.path}?call={call}#call-{call}" if call is not None else None

    @admin.display(description=gettext_lazy("status"), empty_value="")
    def outcome(self, row: Any) -> SafeString | None:
        shown = super().outcome(row)
        if not row.failure_count or shown is None:
            return shown
        url = reverse("admin:messages_app_message_change", args=[quote(row.pk)])
        return format_html('<a href="{}?failure">{}</a>', url, shown)

    def save_model(self, request: HttpRequest, obj: Message, form: Any, change: bool) -> None:
        fields = form.cleaned_data
        message = records.Message(
            role=fields["role"],
            content=fields["content"],
            external_id=fields["external_id"] or fields["form_name"] or None,
            is_completed=True,
        )
        session = fields["session"]
        outcome = ingest(session.project_id, [records.Session(id=str(session.pk), messages=[message])])[0].messages[0]
        if outcome.refused:
            raise Conflict(REFUSALS[outcome.refused], code=outcome.refused)
        obj.pk = outcome.id

    def response_add(self, request: HttpRequest, obj: Message, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, _("The message was added."), messages.SUCCESS)
        url = reverse("admin:messages_app_session_change", args=[quote(obj.session_id)])
        return HttpResponseRedirect(f"{url}?newest#message-{obj.pk}")


def _is_of_runs(parameters: Mapping[str, str]) -> bool:
    """Return whether the list with these parameters is that of the answers, each of which is a run."""
    return parameters.get("role") == Message.Role.ASSISTANT


# This replaces the admin of messages_app, which is registered by now, because this module imports it.
admin.site.unregister(Message)
admin.site.register(Message, TracedMessageAdmin)
