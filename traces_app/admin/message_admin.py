"""The admin of messages; the list of answers is that of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.admin_roles import Page
from access_app.db import Database
from access_app.errors import Conflict
from access_app.models import Role
from access_app.request_database import database
from messages_app import writes
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.downloads import Downloadable, Downloads
from messages_app.admin.exports import Export, amount, text
from messages_app.admin.filters import CreatedFilter, OrderFilter, ProjectFilter, SessionNameFilter
from messages_app.admin.keyset import KeysetAdmin, NamedList
from messages_app.admin.selection import BulkActions
from messages_app.admin.time_zones import with_zone
from messages_app.admin.trash import Trash, delete_selected, purge_selected, restore_selected
from messages_app.admin.walks import page_size
from messages_app.models import Message, Reference, Session
from messages_app.queries import as_uuid
from messages_app.safe_text import (
    ago,
    first_characters,
    listed_duration,
    moment,
    one_line,
    tokens_as_counted,
    total_cost,
    visible,
)
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.purge.purging import purge_deleted_message
from traces_app.models import AgentStep
from traces_app.queries.questions import question_before
from traces_app.queries.runs.actors import read_about
from traces_app.queries.runs.listed import ENDING, endings, with_errors
from traces_app.queries.runs.outcome import Outcome
from traces_app.queries.search.texts import FIELDS
from traces_app.queries.session_names import (
    TITLES_SEARCHED,
    first_keys,
    keys_beginning,
    read_session_names,
    sessions_named,
)
from tracesite_sdk import records

from .about_runs import differing_words
from .bulk_scores import score_selected
from .compare_page import compare_selected, show_comparison
from .conversation import MESSAGE_DETAILS
from .facets import send_facets
from .filters import (
    HealthFilter,
    MessageAgentFilter,
    MessageModelFilter,
    MessageScoreFilter,
    MessageToolFilter,
    MessageToolStatusFilter,
    OutcomeFilter,
)
from .flag_labels import FLAG_LABELS
from .forms import REFUSALS, MessageForm, SessionField, add_by_ingest
from .input_page import show_input
from .labels import NAME_CHARACTERS, badge, outcome_first, outcome_label, second_line, text_of
from .list_filters import (
    SORTS,
    CompletedFilter,
    CostFilter,
    DurationFilter,
    MessageErrorsFilter,
    MessageTagFilter,
    MessageUserFilter,
    RoleFilter,
)
from .message_page import show_message
from .peek import send_peek
from .run_outline import send_detail, send_outline, send_words
from .run_search import send_matches
from .scores import judge_message
from .similar_page import send_similar_calls, show_similar
from .span_page import show_spans_of_message
from .text_search import beginning_with, named_or_saying, with_found

FLAGS_LISTED = 5
"""Flags of one message in a list; the page of the message shows all."""


def _told_below(row: Any, *, with_role: bool) -> SafeString:
    """Return the line below a message of a list: who said it, and what its run came to if there is something to say."""
    tokens = row.input_tokens + row.output_tokens
    role = format_html('<span class="said-by said-by-{}">{}</span>', row.role, capfirst(row.get_role_display()))
    parts = [role] if with_role else []
    if row.ending and row.ending.outcome != Outcome.DONE:
        parts.append(outcome_label(row.ending.outcome))
    failed, calls = row.failure_count, row.call_count
    counts = (
        ("", calls, ngettext("%(number)s tool call", "%(number)s tool calls", calls)),
        ("bad", failed, ngettext("%(number)s failed", "%(number)s failed", failed)),
        ("", tokens, ngettext("%(number)s token", "%(number)s tokens", tokens)),
    )
    for kind, number, words in counts:
        if number:
            parts.append(format_html('<span class="{}">{}</span>', kind, words % {"number": f"{number:,}"}))
    return format_html_join(" · ", "{}", ((part,) for part in parts))


def _url_of_conversation(db: Database, key: Any) -> str:
    session = db.rows(Message.with_deleted).values_list("session_id", flat=True).get(pk=key)
    return reverse("admin:messages_app_session_change", args=[quote(session)])


@admin.register(Message)
class MessageAdmin(KeysetAdmin):
    """The list of messages; the page of an answer shows its run."""

    add_role = Role.EDITOR
    form = MessageForm
    pages = (
        Page("facets/", send_facets, "facets"),
        Page("<uuid:message_id>/peek/", send_peek, "peek"),
        Page("<uuid:message_id>/outline/", send_outline, "outline"),
        Page("<uuid:message_id>/words/", send_words, "words"),
        Page("<uuid:message_id>/outline/<uuid:node_id>/", send_detail, "detail"),
        Page("<uuid:message_id>/search/", send_matches, "search"),
        Page("<uuid:message_id>/spans/", show_spans_of_message, "spans"),
        Page("<uuid:message_id>/steps/<uuid:step_id>/input/", show_input, "input"),
        Page("<uuid:message_id>/judge/", judge_message, "judge"),
        Page("<uuid:message_id>/compare/", show_comparison, "compare"),
        Page("<uuid:message_id>/similar/", show_similar, "similar"),
        Page("<uuid:message_id>/similar/<uuid:node_id>/", send_similar_calls, "similar_calls"),
    )
    trash: ClassVar[Trash] = Trash(
        delete=writes.delete_message,
        restore=writes.restore_message,
        purge=purge_deleted_message,
        what_is_restored=gettext_lazy(
            "Restoring a message brings back its place in the conversation, its steps, tool calls and references, and its scores. "
            "Messages of a deleted session come back with the session."
        ),
        other=(gettext_lazy("Deleted sessions"), "admin:messages_app_session_trash"),
        search_help=format_lazy(
            gettext_lazy(
                "Search by message ID, external ID or request ID, or by session: ID, external ID, end user, or "
                "words in the title (newest {number} sessions only)."
            ),
            number=f"{TITLES_SEARCHED:,}",
        ),
        named_by="text",
        columns=("who", "in_session", "project", "calls", "created"),
        related=("project", "session"),
        session_of=lambda row: row.session,
        url_after_delete=_url_of_conversation,
    )
    bulk = BulkActions(for_all=True)
    sorts = SORTS
    searched_fields = FIELDS
    search_example = "outcome:failed cost:>0.01"
    actions = (delete_selected, restore_selected, purge_selected, compare_selected, score_selected)
    api = ApiList(name="messages", searches=True)
    search_help_text = gettext_lazy(
        'Search for words anywhere in messages, steps, calls and results, all of which must occur ("exact phrase", -without, '
        "error:timeout), by message ID, external ID or request ID, or by session: ID, external ID, end user or title. The first 6 "
        "characters of an ID, or of the external ID of a session, are enough."
    )
    list_filter: ClassVar[Any] = (
        *(ProjectFilter, RoleFilter, OutcomeFilter, CompletedFilter, MessageErrorsFilter),
        *(HealthFilter, MessageToolFilter, MessageToolStatusFilter, MessageModelFilter, MessageAgentFilter),
        *(SessionNameFilter, MessageTagFilter, MessageUserFilter, DurationFilter, CostFilter),
        *(MessageScoreFilter, OrderFilter, CreatedFilter),
    )
    list_display: Any = ("text", "took", "spent", "created", "in_session", "project")
    columns_with_text = ("took", "spent", "failures")
    list_display_links = ("text", "question")
    columns = Columns(
        (
            *("text", "outcome", "who", "took", "tokens", "spent", "failures", "created", "in_session", "project"),
            *("problems", "named", "requested", "steps", "calls", "tokens_in", "tokens_out", "ended"),
        )
    )
    named_lists = (
        NamedList(
            parameter="role",
            value=Message.Role.ASSISTANT,
            title=gettext_lazy("Runs"),
            # One knows a run by what was asked.
            columns=("question", "answer", *(name for name in columns.known if name not in ("text", "who"))),
            usual=("question", "outcome", "took", "spent", "failures", "created", "in_session", "project"),
            # A message that is added by hand is no run.
            can_add=False,
        ),
    )
    exports = Export(
        {
            "id": F("pk"),
            "project": F("project__slug"),
            "session": F("session_id"),
            "session_external_id": text("session__external_id"),
            "role": F("role"),
            "external_id": text("external_id"),
            "request_id": text("request_id"),
            "content": text("content"),
            "is_completed": F("is_completed"),
            "error": text("error"),
            "health": F("health"),
            "step_count": F("step_count"),
            "call_count": F("call_count"),
            "failure_count": F("failure_count"),
            "model_error_count": F("model_error_count"),
            "input_tokens": F("input_tokens"),
            "output_tokens": F("output_tokens"),
            "duration_ms": F("duration_ms"),
            "cost": amount("cost"),
            "unpriced_count": F("unpriced_count"),
            "created_at": F("created_at"),
            "completed_at": F("completed_at"),
        }
    )
    downloads = Downloads(
        {
            "message": Downloadable(
                rows=Message.with_deleted, columns=frozenset(["content", "content_parts", "error", *MESSAGE_DETAILS])
            ),
            "reference": Downloadable(
                rows=Reference.objects,
                columns=frozenset(["content", "image_info", "metadata"]),
            ),
            "step": Downloadable(
                rows=AgentStep.with_deleted,
                columns=frozenset(["thought", "reasoning", "usage", "metadata"]),
            ),
        }
    )

    # --- The list -------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        db = database(request)
        fields = [
            *("project", "session__external_id", "session__deleted_at", "role", "external_id", "request_id"),
            *("duration_ms", "cost", "unpriced_count", "input_tokens", "output_tokens", *ENDING),
            *("created_at", "completed_at", "deleted_at", "deleted_by"),
            *("session__end_user", "session__tags", "session__last_run_id"),
        ]
        messages = self.trash.rows(self, request).select_related("project", "session")
        shortened: QuerySet[Any] = with_errors(messages.only(*fields, *self.listed_columns(request))).annotate(
            # More characters than shown, because one_line collapses runs of spaces.
            shown_content=first_characters("content", 4 * NAME_CHARACTERS),
            session_title=first_characters("session__title", NAME_CHARACTERS + 1),
        )
        if "question" not in self.get_list_display(request):
            return shortened
        asked = question_before(db, OuterRef("session_id"), OuterRef("pk"), 4 * NAME_CHARACTERS)
        with_questions: QuerySet[Any] = shortened.annotate(shown_question=Subquery(asked))
        return with_questions

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        db = Database.of(queryset)
        term = search_term.strip()
        if not term:
            return queryset, False
        # By the ids from small queries: for an OR of three conditions the planner would scan along the primary key.
        keys = [key for field in ("external_id", "request_id") for key in first_keys(queryset.filter(**{field: term}))]
        keys += keys_beginning(queryset, term)
        is_id = as_uuid(term) is not None
        among = db.rows(Session.with_deleted).all() if is_id else db.rows(Session.objects).all()
        # The ID of a deleted session finds its messages in the trash.
        sessions = beginning_with(request, db, among, term)
        if not is_id:
            sessions += sessions_named(db, db.rows(Session.objects).order_by("-pk"), term)
        named = queryset.filter(Q(pk__in=keys) | Q(session_id__in=sessions))
        if is_id or self.in_trash(request):
            return named, False
        return named_or_saying(request, queryset, named, term, "message", page_size(self, request)), False

    def has_peek(self, request: HttpRequest) -> bool:
        return self.named_list(request.GET) is not None and super().has_peek(request)

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        lists_runs = "question" in columns
        runs = [row for row in rows if row.role == Message.Role.ASSISTANT]
        has_roles = "text" in columns and "who" not in columns
        found = endings(runs) if lists_runs or "outcome" in columns or has_roles else {}
        is_of_several = len({row.role for row in rows}) > 1
        for row in rows:
            row.ending = found.get(row.pk)
            row.below = _told_below(row, with_role=is_of_several) if has_roles else ""
            row.is_answer_below = lists_runs and "answer" not in columns and not row.ending.error

        def says(row: Any) -> dict[str, str]:
            shown = row.is_answer_below or "text" in columns or "answer" in columns
            return {"content": one_line(row.shown_content, NAME_CHARACTERS)} if shown else {}

        if "in_session" in columns:
            for row in rows:
                row.session.shown_title = row.session_title
            names = read_session_names(row.session for row in rows)
            differing = differing_words(read_about(runs)) if lists_runs else {}
            for row in rows:
                row.session_name = names[row.session_id]
                row.about = differing.get(row.pk, "")
        shown = with_found(request, columns, rows, says)
        return outcome_first(shown, "outcome") if lists_runs else shown

    # --- One message ----------------------------------------------------------------------------------------

    def row_name(self, row: Any) -> str:
        # Of a row of a list, the content would be read again.
        content = row.shown_content if hasattr(row, "shown_content") else row.content
        text = one_line(content, NAME_CHARACTERS)
        return f"{row.get_role_display()}: {text}" if text else str(row)

    def contents(self, rows: Iterable[Any]) -> str:
        calls = sum(row.call_count for row in rows)
        if not calls:
            return ""
        words = ngettext("%(number)s tool call", "%(number)s tool calls", calls) % {"number": f"{calls:,}"}
        return _("This includes %(calls)s.") % {"calls": words}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return show_message(self, request, object_id)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.db = database(request)
        field = form.base_fields.get("session")  # of the class that Django makes for each request
        if isinstance(field, SessionField):
            field.scope = self.scope(request, Role.EDITOR)
            field.queryset = form.db.rows(Session.objects).all()
        return form

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return add_by_ingest(self, request, super().add_view, form_url, extra_context)

    def save_model(self, request: HttpRequest, obj: Message, form: Any, change: bool) -> None:
        db = database(request)
        fields = form.cleaned_data
        message = records.Message(
            role=fields["role"],
            content=fields["content"],
            external_id=fields["external_id"] or fields["form_name"] or None,
            is_completed=True,
        )
        session = fields["session"]
        outcome = ingest(db, session.project_id, [records.Session(id=str(session.pk), messages=[message])])[0].messages[
            0
        ]
        if outcome.refused:
            raise Conflict(REFUSALS[outcome.refused], code=outcome.refused)
        obj.pk = outcome.id

    def response_add(self, request: HttpRequest, obj: Message, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, _("The message was added."), messages.SUCCESS)
        url = reverse("admin:messages_app_session_change", args=[quote(obj.session_id)])
        return HttpResponseRedirect(f"{url}?newest#message-{obj.pk}")

    # --- Columns --------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("content"))
    def text(self, row: Any) -> SafeString:
        text = text_of(row)
        return text + second_line("quiet", row.below) if getattr(row, "below", "") else text

    @admin.display(description=gettext_lazy("role"))
    def who(self, row: Message) -> SafeString:
        return badge(row.role, row.get_role_display())

    @admin.display(description=gettext_lazy("session"))
    def in_session(self, row: Any) -> SafeString:
        url = reverse("admin:messages_app_session_change", args=[quote(row.session_id)])
        name = format_html('<a href="{}">{}</a>', url, visible(one_line(row.session_name, NAME_CHARACTERS // 2)))
        return name + second_line("quiet", visible(row.about)) if row.about else name

    @admin.display(description=gettext_lazy("external ID"), empty_value="")
    def named(self, row: Message) -> SafeString:
        return visible(one_line(row.external_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("request ID"), empty_value="")
    def requested(self, row: Message) -> SafeString:
        return visible(one_line(row.request_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("steps"), empty_value="")
    def steps(self, row: Message) -> str:
        return f"{row.step_count:,}" if row.step_count else ""

    @admin.display(description=gettext_lazy("tool calls"), empty_value="")
    def calls(self, row: Message) -> str:
        return f"{row.call_count:,}" if row.call_count else ""

    @admin.display(description=gettext_lazy("tokens"), empty_value="")
    def tokens(self, row: Message) -> SafeString | None:
        total = row.input_tokens + row.output_tokens
        if not total:
            return None
        title = tokens_as_counted(row.input_tokens, row.output_tokens)
        return format_html('<span title="{}">{}</span>', title, f"{total:,}")

    @admin.display(description=gettext_lazy("input tokens"), empty_value="")
    def tokens_in(self, row: Message) -> str:
        return f"{row.input_tokens:,}" if row.input_tokens else ""

    @admin.display(description=gettext_lazy("output tokens"), empty_value="")
    def tokens_out(self, row: Message) -> str:
        return f"{row.output_tokens:,}" if row.output_tokens else ""

    @admin.display(description=gettext_lazy("failed"), empty_value="")
    def failures(self, row: Message) -> SafeString | None:
        if not row.failure_count:
            return None
        url = reverse("admin:messages_app_message_change", args=[quote(row.pk)])
        return format_html('<a href="{}?failure">{}</a>', url, f"{row.failure_count:,}")

    @admin.display(description=gettext_lazy("outcome"), empty_value="")
    def outcome(self, row: Any) -> SafeString | None:
        return outcome_label(row.ending.outcome) if row.ending else None

    @admin.display(description=gettext_lazy("duration"), empty_value="")
    def took(self, row: Message) -> SafeString:
        return listed_duration(row)

    @admin.display(description=gettext_lazy("cost"), empty_value="")
    def spent(self, row: Message) -> SafeString:
        return total_cost(row)

    @admin.display(description=with_zone(gettext_lazy("completed at")), empty_value="")
    def ended(self, row: Message) -> SafeString:
        return moment(row.completed_at)

    @admin.display(description=gettext_lazy("time"))
    def created(self, row: Message) -> SafeString:
        return ago(row.created_at)

    @admin.display(description=gettext_lazy("question"))
    def question(self, row: Any) -> SafeString:
        asked = one_line(row.shown_question, NAME_CHARACTERS)
        name = visible(asked) if asked else format_html('<span class="quiet">{}</span>', _("(no question)"))
        if row.ending.error:
            kind = "bad" if row.ending.outcome == Outcome.FAILED else "quiet"
            return name + second_line(kind, visible(one_line(row.ending.error, 2 * NAME_CHARACTERS)))
        return name + second_line("quiet", text_of(row)) if row.is_answer_below else name

    @admin.display(description=gettext_lazy("answer"))
    def answer(self, row: Any) -> SafeString:
        return text_of(row)

    @admin.display(description=gettext_lazy("health"), empty_value="")
    def problems(self, row: Message) -> SafeString | None:
        labels = ", ".join(str(FLAG_LABELS.get(flag, flag)) for flag in row.health[:FLAGS_LISTED])
        return visible(one_line(labels, NAME_CHARACTERS)) if labels else None
