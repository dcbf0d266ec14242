"""The admin of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.db.models import Case, F, OuterRef, QuerySet, Subquery, TextField, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.admin_roles import Page
from access_app.db import Database
from access_app.errors import Conflict
from access_app.masking import masking_of
from access_app.models import Role
from access_app.program import program
from access_app.request_database import database, projects_in
from access_app.roles import access
from access_app.visibility import visible_to
from messages_app import writes
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.downloads import Downloadable, Downloads
from messages_app.admin.exports import Export, amount, text
from messages_app.admin.filters import ActiveFilter, BeganFilter, OrderFilter, ProjectFilter, Sort
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.selection import BulkActions
from messages_app.admin.trash import Trash, delete_selected, purge_selected, restore_selected
from messages_app.admin.walks import page_size
from messages_app.models import Message, Session
from messages_app.queries import as_uuid
from messages_app.safe_text import ago, first_characters, marked, one_line, run_time, total_cost, visible
from traces_app.ingest.changes import tag_sessions
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.queries.archived import where_archived
from traces_app.queries.questions import first_question
from traces_app.queries.runs.listed import ENDING, endings, with_errors
from traces_app.queries.runs.outcome import OF_STATUS, Outcome
from traces_app.queries.search.texts import FIELDS
from traces_app.queries.session_names import TITLES_SEARCHED, read_session_name, session_name, sessions_named
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_session_patch

from .bulk_scores import score_selected
from .connect_page import send_arrived, show_connect
from .conversation import SESSION_DETAILS
from .facets import send_facets
from .filters import SessionAgentFilter, SessionModelFilter, SessionOutcomeFilter, SessionScoreFilter, SessionToolFilter
from .forms import REFUSALS, SessionForm, TagForm, add_by_ingest
from .import_page import show_import
from .labels import NAME_CHARACTERS, badge, found_terms, outcome_first, outcome_label, second_line, url_of_user
from .list_filters import (
    SORTS,
    EndUserFilter,
    SessionCostFilter,
    SessionDurationFilter,
    SessionErrorsFilter,
    SessionStatusFilter,
    TagFilter,
)
from .peek import send_session_peek
from .search_page import show_everything
from .session_outline import send_detail, send_outline, send_words
from .session_page import show_live, show_session, url_of_failures
from .session_search import send_matches
from .snapshot_pages import show_snapshots
from .span_page import show_spans_of_session
from .text_search import beginning_with, named_or_saying, with_found
from .user_page import show_user

TAGS_LISTED = 5
"""Tags of one session in a list; its page shows all."""


def _purge_session(db: Database, session_id: UUID) -> bool:
    report = purge(db, PurgeScope(deleted_before=timezone.now(), session_id=session_id))
    return report.tables["sessions"].rows > 0


@admin.action(description=gettext_lazy("Add a tag to selected sessions"), permissions=["add"])
def tag_selected(model_admin: KeysetAdmin, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponse | None:
    """Ask for a tag, then add it to the sessions that lack it."""
    db = Database.of(queryset)
    selection = model_admin.bulk.selection(model_admin, request, queryset)
    form = TagForm(request.POST if request.POST.get("post") else None)
    if form.is_valid():
        tag = form.cleaned_data["tag"]
        rows = list(selection.rows)
        changed = _tagged(db, rows, tag)
        for row in rows:
            if row.pk in changed:
                model_admin.log_change(request, row, [{"changed": {"fields": ["tags"]}}])
        text = ngettext(
            "%(count)s session has the tag “%(tag)s” now; %(before)s had it before.",
            "%(count)s sessions have the tag “%(tag)s” now; %(before)s had it before.",
            len(changed),
        )
        words = {"count": f"{len(changed):,}", "tag": tag, "before": f"{len(rows) - len(changed):,}"}
        model_admin.message_user(request, text % words, messages.SUCCESS if changed else messages.INFO)
        return None
    context = {
        **model_admin.admin_site.each_context(request),
        **model_admin.bulk.confirmation(model_admin, selection),
        "title": _("Add a tag"),
        "opts": model_admin.opts,
        "form": form,
    }
    return TemplateResponse(request, "admin/traces_app/tag_sessions.html", context)


def _tagged(db: Database, sessions: Sequence[Session], tag: str) -> set[UUID]:
    """Add a tag to sessions, masked as each project asks. Return the changed ones."""
    of_project: dict[int, list[UUID]] = {}
    for session in sessions:
        of_project.setdefault(session.project_id, []).append(session.pk)
    changed: set[UUID] = set()
    for project_id, session_ids in of_project.items():
        change = redact_session_patch(records.SessionPatch(tags=[tag]), masking_of(project_id))
        changed.update(tag_sessions(db, session_ids, change))
    return changed


def _newest_runs(rows: Iterable[Session]) -> list[Message]:
    """Return the newest runs of sessions of a list. One query a database."""
    of_db: dict[Database, list[UUID]] = {}
    for row in rows:
        if row.last_run_id is not None:
            of_db.setdefault(Database.of_row(row), []).append(row.last_run_id)
    return [
        run
        for db, keys in of_db.items()
        for run in with_errors(db.rows(Message.objects).select_related("session").only(*ENDING, *_TIMES)).filter(
            pk__in=keys
        )
    ]


_TIMES = ("created_at", "completed_at", "duration_ms")
_SORTS: Mapping[str, Sort] = {
    "activity": Sort(column="active", value="active_at", title=gettext_lazy("Latest activity first"), is_indexed=True),
    **SORTS,
}


@admin.register(Session)
class SessionAdmin(KeysetAdmin):
    """The list of sessions; the page of a session shows its conversation."""

    add_role = Role.EDITOR
    form = SessionForm
    pages = (
        Page("everything/", show_everything, "everything"),
        Page("facets/", send_facets, "facets"),
        Page("import/", show_import, "import", checks_csrf=True),
        Page("connect/", show_connect, "connect"),
        Page("arrived/", send_arrived, "arrived"),
        Page("user/", show_user, "user"),
        Page("<uuid:session_id>/peek/", send_session_peek, "peek"),
        Page("<uuid:session_id>/live/", show_live, "live"),
        Page("<uuid:session_id>/outline/", send_outline, "outline"),
        Page("<uuid:session_id>/outline/<uuid:node_id>/", send_detail, "detail"),
        Page("<uuid:session_id>/words/", send_words, "words"),
        Page("<uuid:session_id>/search/", send_matches, "search"),
        Page("<uuid:session_id>/spans/", show_spans_of_session, "spans"),
        Page("<uuid:session_id>/snapshots/", show_snapshots, "snapshots"),
        Page("<uuid:session_id>/snapshots/<uuid:snapshot_id>/", show_snapshots, "snapshot"),
    )
    trash: ClassVar[Trash] = Trash(
        delete=writes.delete_session,
        restore=writes.restore_session,
        purge=_purge_session,
        what_is_restored=gettext_lazy(
            "Restoring a session brings back its messages with everything below them, its tags and its scores. Messages that "
            "were deleted individually stay in the trash."
        ),
        other=(gettext_lazy("Deleted messages"), "admin:messages_app_message_trash"),
        search_help=format_lazy(
            gettext_lazy(
                "Search by ID, external ID, end user, or words in the title (newest {number} sessions of this list only)."
            ),
            number=f"{TITLES_SEARCHED:,}",
        ),
        named_by="name",
        columns=("user", "project", "messages", "calls", "created"),
    )
    bulk = BulkActions(for_all=True)
    sorts = _SORTS
    searched_fields = FIELDS
    search_example = "outcome:failed cost:>0.01"
    actions = (delete_selected, restore_selected, purge_selected, tag_selected, score_selected)
    api = ApiList(name="sessions", searches=True)
    search_help_text = gettext_lazy(
        'Search for words anywhere in messages, steps, calls and results, all of which must occur ("exact phrase", -without, '
        "error:timeout), or by end user, title, ID or external ID, of which the first 6 characters are enough."
    )
    list_filter: ClassVar[Any] = (
        *(ProjectFilter, SessionOutcomeFilter, SessionStatusFilter, SessionErrorsFilter),
        *(SessionToolFilter, SessionModelFilter, SessionAgentFilter),
        *(TagFilter, EndUserFilter, SessionDurationFilter, SessionCostFilter, OrderFilter),
        *(SessionScoreFilter, ActiveFilter, BeganFilter),
    )
    list_display = ("name", "state", "project", "user", "calls", "failures", "took", "spent", "created")
    columns = Columns(
        (
            *("name", "state", "problems", "named", "project", "user", "labels", "messages", "calls", "failures"),
            *("tokens_in", "tokens_out", "took", "spent", "active", "created"),
        )
    )
    exports = Export(
        {
            "id": F("pk"),
            "project": F("project__slug"),
            "external_id": text("external_id"),
            "title": text("title"),
            "end_user": text("end_user"),
            "tags": F("tags"),
            "status": F("status"),
            "message_count": F("message_count"),
            "call_count": F("call_count"),
            "failure_count": F("failure_count"),
            "problem_count": F("problem_count"),
            "input_tokens": F("input_tokens"),
            "output_tokens": F("output_tokens"),
            "duration_ms": F("duration_ms"),
            "cost": amount("cost"),
            "unpriced_count": F("unpriced_count"),
            "created_at": F("created_at"),
            "active_at": F("active_at"),
        }
    )
    downloads = Downloads(
        {"session": Downloadable(rows=Session.with_deleted, columns=frozenset(["description", *SESSION_DETAILS]))}
    )

    # --- The list -------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        db = database(request)
        fields = [
            *("project", "external_id", "status", "last_run_id", "message_count", "call_count", "problem_count"),
            "duration_ms",
            *(
                "cost",
                "unpriced_count",
                "open_count",
                "failure_count",
                "input_tokens",
                "output_tokens",
                "end_user",
                "tags",
            ),
            *("created_at", "active_at", "deleted_at", "deleted_by"),
        ]
        sessions = self.trash.rows(self, request).select_related("project")
        named: QuerySet[Any] = sessions.only(*fields, *self.listed_columns(request)).annotate(
            shown_title=first_characters("title", NAME_CHARACTERS + 1),
            shown_question=Case(
                When(title="", then=Subquery(first_question(db, OuterRef("pk"), 4 * NAME_CHARACTERS))),
                output_field=TextField(),
            ),
        )
        return named

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        db = Database.of(queryset)
        term = search_term.strip()
        if not term:
            return queryset, False
        beginning = beginning_with(request, db, queryset, term)
        if as_uuid(term) is not None:
            return queryset.filter(pk__in=beginning), False
        named = queryset.filter(pk__in=[*beginning, *sessions_named(db, queryset, term)])
        if self.in_trash(request):
            return named, False
        return named_or_saying(request, queryset, named, term, "session", page_size(self, request)), False

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        if {"state", "took"} & set(columns):
            runs = {run.pk: run for run in _newest_runs(rows)}
            ended = endings(runs.values())
            for row in rows:
                row.last_run, ending = runs.get(row.last_run_id), ended.get(row.last_run_id)
                row.outcome = ending.outcome if ending else OF_STATUS[row.status]
                row.error = ending.error if ending and ending.outcome == Outcome.FAILED else ""
        shown = with_found(request, columns, rows, lambda row: {"title": session_name(row)})
        return outcome_first(shown, "state")

    def usual_columns(self, request: HttpRequest) -> Sequence[str]:
        usual = super().usual_columns(request)
        # The time by which they are ordered.
        by_activity = self.sort(request) is _SORTS["activity"]
        return ["active" if by_activity and name == "created" else name for name in usual]

    # --- One session ----------------------------------------------------------------------------------------

    def row_name(self, row: Any) -> str:
        return session_name(row) if hasattr(row, "shown_question") else read_session_name(row)

    def contents(self, rows: Iterable[Any]) -> str:
        counts = [(row.message_count, row.call_count) for row in rows]
        count, calls = sum(messages for messages, _calls in counts), sum(calls for _messages, calls in counts)
        if not count:
            return ""
        words = {
            "messages": ngettext("%(number)s message", "%(number)s messages", count) % {"number": f"{count:,}"},
            "calls": ngettext("%(number)s tool call", "%(number)s tool calls", calls) % {"number": f"{calls:,}"},
        }
        return (
            _("This includes %(messages)s and %(calls)s.") % words
            if calls
            else _("This includes %(messages)s.") % words
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return show_session(self, request, object_id)

    def missing(self, request: HttpRequest) -> HttpResponse:
        """Say where a session is archived; redirect like other lists if it is not."""
        db = database(request)
        names = request.resolver_match.kwargs.values() if request.resolver_match else ()
        place = next(filter(None, (where_archived(db, self.scope(request), str(name)) for name in names)), None)
        if place is None:
            return super().missing(request)
        context = {
            **self.admin_site.each_context(request),
            "title": _("The session was archived"),
            "opts": self.opts,
            "place": place,
            "shows_folder": where_archived(db, access(request).scope(Role.OWNER), str(next(iter(names)))) is not None,
            "program": program(),
            "session_id": next(iter(names)),
        }
        return TemplateResponse(request, "admin/traces_app/archived_page.html", context, status=410)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        # Django makes a class for each request.
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.db = database(request)
        return form

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "project":
            kwargs["queryset"] = visible_to(projects_in(database(request)), self.scope(request, Role.EDITOR), "pk")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return add_by_ingest(self, request, super().add_view, form_url, extra_context)

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        db = database(request)
        names = ("external_id", "title", "description", "end_user", "tags")
        fields = {name: form.cleaned_data[name] or None for name in names}
        fields["external_id"] = fields["external_id"] or form.cleaned_data["form_name"] or None
        outcome = ingest(db, obj.project_id, [records.Session(**fields)])[0]
        if outcome.refused:
            raise Conflict(REFUSALS[outcome.refused], code=outcome.refused)
        obj.pk = outcome.id

    def response_add(self, request: HttpRequest, obj: Session, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, _("The session was added."), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:messages_app_session_change", args=[quote(obj.pk)]))

    # --- Columns --------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("session"))
    def name(self, row: Any) -> SafeString:
        name = marked(session_name(row), found_terms(row, "title"))
        if error := getattr(row, "error", ""):
            return name + second_line("bad", visible(one_line(error, 2 * NAME_CHARACTERS)))
        if row.shown_title or not row.shown_question or not row.external_id:
            return name
        return name + second_line("quiet", visible(one_line(row.external_id, NAME_CHARACTERS)))

    @admin.display(description=gettext_lazy("outcome"))
    def state(self, row: Any) -> SafeString:
        return outcome_label(row.outcome)

    @admin.display(description=gettext_lazy("external ID"), empty_value="")
    def named(self, row: Session) -> SafeString:
        return visible(one_line(row.external_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("end user"), empty_value="")
    def user(self, row: Session) -> SafeString | None:
        if not row.end_user:
            return None
        return format_html(
            '<a href="{}">{}</a>', url_of_user(row.end_user), visible(one_line(row.end_user, NAME_CHARACTERS))
        )

    @admin.display(description=gettext_lazy("tags"), empty_value="")
    def labels(self, row: Session) -> SafeString:
        url = reverse("admin:messages_app_session_changelist")
        links = (
            (url, urlencode({"tag": tag}), visible(one_line(tag, NAME_CHARACTERS // 2)))
            for tag in row.tags[:TAGS_LISTED]
        )
        return format_html_join(" ", '<a class="tag" href="{}?{}">{}</a>', links)

    @admin.display(description=gettext_lazy("messages"))
    def messages(self, row: Session) -> str:
        return f"{row.message_count:,}"

    @admin.display(description=gettext_lazy("tool calls"))
    def calls(self, row: Session) -> str:
        return f"{row.call_count:,}"

    @admin.display(description=gettext_lazy("failed"), empty_value="")
    def failures(self, row: Session) -> SafeString | None:
        if not row.failure_count:
            return None
        return format_html('<a href="{}">{}</a>', url_of_failures(row), f"{row.failure_count:,}")

    @admin.display(description=gettext_lazy("input tokens"), empty_value="")
    def tokens_in(self, row: Session) -> str:
        return f"{row.input_tokens:,}" if row.input_tokens else ""

    @admin.display(description=gettext_lazy("output tokens"), empty_value="")
    def tokens_out(self, row: Session) -> str:
        return f"{row.output_tokens:,}" if row.output_tokens else ""

    @admin.display(description=gettext_lazy("problems"), empty_value="")
    def problems(self, row: Session) -> SafeString | None:
        if not row.problem_count:
            return None
        query = {"role": Message.Role.ASSISTANT, "session": row.pk, "has_errors": "true"}
        url = reverse("admin:messages_app_message_changelist", query=query)
        counted = _("Failed calls, errors of models, and runs that ended with an error")
        return format_html('<a href="{}" title="{}">{}</a>', url, counted, badge("error", f"{row.problem_count:,}"))

    @admin.display(description=gettext_lazy("run time"), empty_value="")
    def took(self, row: Any) -> str:
        return run_time(row, row.last_run)

    @admin.display(description=gettext_lazy("cost"), empty_value="")
    def spent(self, row: Session) -> SafeString:
        return total_cost(row)

    @admin.display(description=gettext_lazy("last activity"))
    def active(self, row: Session) -> SafeString:
        return ago(row.active_at)

    @admin.display(description=gettext_lazy("started"))
    def created(self, row: Session) -> SafeString:
        return ago(row.created_at)
