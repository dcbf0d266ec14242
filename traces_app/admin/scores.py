"""Scores in the admin: beside the answers that they are about, with thumbs and a note of the reader, and as a list below their averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.contrib.humanize.templatetags.humanize import intcomma
from django.core.exceptions import PermissionDenied
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from access_app.admin_roles import Page
from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.masked_reading import mask_of
from access_app.masking import masking_of
from access_app.models import Role
from access_app.readable_pages import readable_on_page
from access_app.request_database import database
from messages_app.admin.api_list import ApiList
from messages_app.admin.columns import Columns
from messages_app.admin.filters import (
    CreatedFilter,
    NameFilter,
    ProjectFilter,
    RangeListFilter,
    SessionNameFilter,
    TextListFilter,
    WordListFilter,
    YesNoListFilter,
    readable_projects,
    scope_of_page,
)
from messages_app.admin.keyset import KeysetAdmin, KeysetChangeList
from messages_app.models import Message
from messages_app.queries import as_uuid, message_of_page
from messages_app.safe_text import ago, first_characters, one_line, share, visible
from traces_app.ingest.scores import PlacedScore, ScoreTarget, delete_score, place_of_message, store_scores
from traces_app.models import Score, ToolCall
from traces_app.queries.filters import ScoreFilterSet
from traces_app.queries.score_sums import Average, Changed, NamedScores, score_sums
from traces_app.queries.session_names import read_session_name, read_session_names
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score

from .charts import Chart, Slot, chart_of, name_of, round_cost
from .facets import send_facets
from .filters import MessageIdFilter
from .home_charts import parameter_of

SHOWN = 20
"""Scores beside one answer; the list of scores has all."""
NAME_CHARACTERS = 80
LONGEST_NOTE = 20_000
NAMES_SHOWN = 20
"""Names of scores above the list."""
CHARTS_SHOWN = 3
"""Charts above these; a name leads to that of any other."""
PARTS_SHOWN = 5
"""Agents and models of each."""
THUMBS = "thumbs"
"""The name of the scores that readers of the admin give."""
UP, DOWN, NOTE, REMOVE = "up", "down", "note", "remove"


@dataclass(kw_only=True)
class Judgements:
    """The scores of one message or session, for its page."""

    scores: list[Any] = field(default_factory=list)
    """Score; Any because of its annotations. The newest SHOWN ones, oldest first."""
    has_more: bool = False
    own: Any = None
    """The thumbs or the note of the reader."""

    @property
    def is_up(self) -> bool:
        return self.own is not None and self.own.number == 1

    @property
    def is_down(self) -> bool:
        return self.own is not None and self.own.number == 0

    @property
    def note(self) -> str:
        return self.own.comment if self.own is not None else ""


def judgements_of(db: Database, messages: Sequence[Message], user: str) -> dict[UUID, Judgements]:
    """Return the scores of each message, with those of its calls. One query."""
    found = {message.pk: Judgements() for message in messages}
    rows = _shortened(db.rows(Score.with_deleted).filter(message_id__in=list(found), deleted_at__isnull=True))
    for row in rows.select_related("call__tool").order_by("-pk")[: SHOWN * max(len(found), 10)]:
        _add(found[row.message_id], row, user)
    return found


def judgements_of_session(db: Database, session_id: UUID, user: str) -> Judgements:
    """Return the scores of a session as a whole. One query."""
    found = Judgements()
    rows = db.rows(Score.with_deleted).filter(session_id=session_id, message__isnull=True, deleted_at__isnull=True)
    for row in _shortened(rows).order_by("-pk")[: SHOWN + 1]:
        _add(found, row, user)
    return found


def _shortened(rows: QuerySet[Score]) -> QuerySet[Any]:
    shortened: QuerySet[Any] = rows.defer("metadata", "redactions")
    return shortened


def _add(found: Judgements, row: Any, user: str) -> None:
    if row.name == THUMBS and row.source == Score.Source.PERSON and row.author == user and found.own is None:
        found.own = row
    if len(found.scores) < SHOWN:
        found.scores.insert(0, row)
    else:
        found.has_more = True


# --- Thumbs and notes -------------------------------------------------------------------------------------------------


class JudgementForm(forms.Form):
    thumb = forms.ChoiceField(choices=[(word, word) for word in (UP, DOWN, NOTE, REMOVE)])
    comment = forms.CharField(label=gettext_lazy("Note"), max_length=LONGEST_NOTE, required=False)


def judge_message(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Store the thumb and the note of the reader, and return to the page where they were given."""
    db = database(request)
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    message = message_of_page(db, model_admin.scope(request), message_id, deleted_too=False)
    if message is None:
        return model_admin.missing(request)
    if not model_admin.allows(request, Role.EDITOR, message):
        raise PermissionDenied
    form = JudgementForm(request.POST)
    if form.is_valid():
        judge(db, message, request.user.get_username(), form.cleaned_data["thumb"], form.cleaned_data["comment"])
    else:
        for errors in form.errors.values():
            model_admin.message_user(request, str(errors[0]), messages.ERROR)
    back = request.POST.get("back", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        back = reverse("admin:messages_app_message_change", args=[quote(message_id)])
    return HttpResponseRedirect(f"{back.partition('#')[0]}#scores-{message_id}")


def judge(db: Database, message: Message, user: str, thumb: str, comment: str) -> None:
    """Store what a reader thinks of a message: each has one thumb and one note, which replace the earlier ones."""
    place = place_of_message(message)
    external_id = _identity(place, user)
    earlier = db.rows(Score.objects).filter(project_id=message.project_id, external_id=external_id).first()
    if thumb == REMOVE or (thumb == NOTE and not comment and (earlier is None or earlier.number is None)):
        if earlier is not None:
            delete_score(db, earlier.pk)
        return
    kept = earlier.number == 1 if earlier is not None and earlier.number is not None else None
    value = kept if thumb == NOTE else thumb == UP
    record = records.Score(
        name=THUMBS, value=value, comment=comment or None, source="person", author=user, external_id=external_id
    )
    store_scores(
        db,
        message.project_id,
        [PlacedScore(redacted=redact_score(record, masking_of(message.project_id)), place=place)],
    )


def _identity(place: ScoreTarget, user: str) -> str:
    # By the name of the message, because the message of a trace gets another id when its beginning arrives late.
    return f"{THUMBS}:{user}:{place.trace_id or place.session_id}:{place.message_name or place.message_id}"[:512]


# --- The list ---------------------------------------------------------------------------------------------------------


class ScoreNameFilter(NameFilter):
    title = gettext_lazy("name")
    parameter_name = "name"

    def having(self, request: HttpRequest, queryset: QuerySet[Any], name: str) -> QuerySet[Any]:
        return queryset.filter(name=name)


class ScoreKindFilter(WordListFilter):
    title = gettext_lazy("kind")
    parameter_name = "kind"
    filter_set = ScoreFilterSet
    words: ClassVar[Any] = dict(Score.Kind.choices)


class ScoreSourceFilter(WordListFilter):
    title = gettext_lazy("source")
    parameter_name = "source"
    filter_set = ScoreFilterSet
    words: ClassVar[Any] = dict(Score.Source.choices)


class ScoreLabelFilter(TextListFilter):
    title = gettext_lazy("label")
    parameter_name = "label"
    filter_set = ScoreFilterSet


class ScoreAuthorFilter(TextListFilter):
    title = gettext_lazy("author")
    parameter_name = "author"
    filter_set = ScoreFilterSet


class YesOrNoFilter(YesNoListFilter):
    title = gettext_lazy("yes or no")
    parameter_name = "value"
    filter_set = ScoreFilterSet


class ValueFilter(RangeListFilter):
    title = gettext_lazy("value")
    parameter_names = ("min_value", "max_value")
    filter_set = ScoreFilterSet


@dataclass(frozen=True, kw_only=True)
class AverageRow:
    """The scores of one name above the list."""

    named: NamedScores
    url: str
    changed: Changed | None
    url_after: str = ""
    """The list of the scores after the change."""

    @property
    def shown_before(self) -> str:
        return self.words(self.changed.before) if self.changed else ""

    @property
    def shown_after(self) -> str:
        return self.words(self.changed.after) if self.changed else ""

    @property
    def has_risen(self) -> bool:
        return self.changed is not None and (self.changed.after.value or 0) > (self.changed.before.value or 0)

    @property
    def shown(self) -> str:
        return self.words(self.named.whole)

    @property
    def agents(self) -> list[tuple[str, str, int]]:
        return self._parts(self.named.agents)

    @property
    def models(self) -> list[tuple[str, str, int]]:
        return self._parts(self.named.models)

    def _parts(self, averages: Mapping[str, Average]) -> list[tuple[str, str, int]]:
        """Return the names with their average and number of scores, those with most scores first."""
        most = sorted(averages.items(), key=lambda one: (-one[1].scores, one[0]))[:PARTS_SHOWN]
        return [(name, self.words(average), average.scores) for name, average in most]

    def words(self, average: Average) -> str:
        if average.value is None:
            return ""
        return share(round(average.total), average.numbers) if self.named.is_share else f"{average.value:,.4g}"


def averages_context(request: HttpRequest, changelist: KeysetChangeList) -> dict[str, Any]:
    """Return the averages of the scores of a list. A search, another page than the first, and a session or message have none."""
    given = changelist.api_parameters()
    slug = given.pop("project", "")
    projects = readable_projects(request)
    if changelist.query or changelist.newer_query_string or given.keys() & {"session", "message"}:
        return {}
    if slug and slug not in projects:
        return {}
    filters = ScoreFilterSet(QueryDict(urlencode(given)), mask=mask_of(request))
    readable = readable_on_page(request, scope_of_page(request, projects.get(slug)))
    try:
        sums = score_sums(readable.rows(lambda db, scope: filters.found(db, scope, None)))
    except InvalidInput:  # it took too long
        return {}
    rows = [_average_row(named, changelist) for named in sums.names[:NAMES_SHOWN]]
    with_numbers = sorted((row for row in rows if row.named.whole.numbers), key=lambda row: row.changed is None)
    charts = [(row, _chart(row, sums.step, changelist)) for row in with_numbers[:CHARTS_SHOWN]]
    return {"sums": sums, "averages": rows, "average_charts": charts}


def _average_row(named: NamedScores, changelist: KeysetChangeList) -> AverageRow:
    changed = named.changed()
    of_name = {"name": named.name}
    after = of_name | ({"created": None, "created_after": parameter_of(changed.at)} if changed else {})
    return AverageRow(
        named=named,
        url=changelist.get_query_string(of_name),
        changed=changed,
        url_after=changelist.get_query_string(after) if changed else "",
    )


def _chart(row: AverageRow, step: timedelta, changelist: KeysetChangeList) -> Chart:
    """Draw the averages of the steps as a line; each step leads to its scores."""
    slots, averages = [], {}
    for begin, average in row.named.steps.items():
        times = {"created": None, "created_after": parameter_of(begin), "created_before": parameter_of(begin + step)}
        count = ngettext("%(number)s score", "%(number)s scores", average.scores) % {"number": intcomma(average.scores)}
        words = " · ".join(filter(None, (name_of(begin, step), row.words(average), count)))
        url = changelist.get_query_string({"name": row.named.name, **times}) if average.scores else ""
        slots.append(Slot(begin=begin, words=words, url=url))
        if average.value is not None:
            averages[begin] = max(average.value, 0)  # below the axis is no room
    is_share = row.named.is_share
    return chart_of(
        slots,
        label=(lambda part: f"{part:.0%}") if is_share else (lambda value: f"{value:,.4g}"),
        scale=(lambda _most: 1) if is_share else round_cost,
        lines={"p95": averages},
        since=row.changed.at if row.changed else None,
    )


@admin.register(Score)
class ScoreAdmin(KeysetAdmin):
    """The list of scores; each row links to what it is about."""

    pages = (Page("facets/", send_facets, "facets"),)
    list_filter = (
        *(ProjectFilter, ScoreNameFilter, YesOrNoFilter, ScoreLabelFilter, ScoreSourceFilter, ScoreAuthorFilter),
        *(ScoreKindFilter, ValueFilter, SessionNameFilter, MessageIdFilter, CreatedFilter),
    )
    list_display = ("shown", "shown_name", "shown_comment", "about", "who", "project", "created")
    columns = Columns(("shown", "shown_name", "kind", "shown_comment", "about", "who", "named", "project", "created"))
    columns_with_text = ("shown_comment",)
    columns_that_differ = ("shown_name", "who")
    api = ApiList(name="scores")
    fields = ("project", "shown_name", "shown", "whole_comment", "about", "who", "external_id", "trace_id", "created")
    search_help_text = gettext_lazy("Search by ID or external ID.")
    change_list_template = "admin/traces_app/score_list.html"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        if (
            isinstance(response, TemplateResponse)
            and response.context_data is not None
            and "cl" in response.context_data
        ):
            response.context_data |= averages_context(request, response.context_data["cl"])
        return response

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        db = database(request)
        scores: QuerySet[Any] = (
            db.rows(Score.objects).visible_to(self.scope(request)).select_related("project", "session")
        )
        # Planning a join with the calls of all months takes longer than reading those of a page.
        calls = Prefetch("call", db.rows(ToolCall.with_deleted).select_related("tool").only("tool", "tool__name"))
        named: QuerySet[Any] = scores.defer(
            "metadata", "redactions", "session__metadata", "session__workflow"
        ).annotate(comment_head=first_characters("comment", 4 * NAME_CHARACTERS))
        return named.prefetch_related(calls)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        key = as_uuid(term)
        found = queryset.filter(external_id=term)
        return (queryset.filter(pk=key) if key is not None and not found.exists() else found), False

    def shown_columns(self, request: HttpRequest, columns: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        names = read_session_names(row.session for row in rows if row.session is not None)
        # Of authors that are all persons, the word would be said in each row.
        is_of_several = len({row.source for row in rows}) > 1
        for row in rows:
            row.session_name = names.get(row.session_id, "")
            row.shown_source = row.get_source_display() if is_of_several or not row.author else ""
        return super().shown_columns(request, columns, rows)

    @admin.display(description=gettext_lazy("name"))
    def shown_name(self, row: Score) -> SafeString:
        return visible(one_line(row.name, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("value"))
    def shown(self, row: Score) -> SafeString:
        return visible(row.shown_value)

    @admin.display(description=gettext_lazy("external ID"), empty_value="")
    def named(self, row: Score) -> SafeString:
        return visible(one_line(row.external_id, NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("comment"))
    def shown_comment(self, row: Any) -> SafeString:
        return visible(one_line(row.comment_head, 2 * NAME_CHARACTERS))

    @admin.display(description=gettext_lazy("comment"))
    def whole_comment(self, row: Score) -> SafeString:
        return visible(row.comment)

    @admin.display(description=gettext_lazy("about"))
    def about(self, row: Score) -> SafeString:
        if row.session is None:
            return visible(_("pending: its trace or session has not arrived"))
        if row.call is not None:
            name, url = one_line(str(row.call.tool), NAME_CHARACTERS), _url_of("message", row.message_id)
            return format_html('<a href="{}?call={}#call-{}">{}</a>', url, row.call_id, row.call_id, visible(name))
        name = visible(
            one_line(getattr(row, "session_name", "") or read_session_name(row.session), NAME_CHARACTERS // 2)
        )
        if row.message_id is not None:
            return format_html('<a href="{}">{}</a>', _url_of("message", row.message_id), name)
        whole = format_html('<a href="{}">{}</a>', _url_of("session", row.session_id), name)
        if row.session.last_run_id is None:
            return whole
        run = format_html('<a href="{}">{}</a>', _url_of("message", row.session.last_run_id), _("newest run"))
        return format_html('{} <span class="quiet">· {}</span>', whole, run)

    @admin.display(description=gettext_lazy("author"))
    def who(self, row: Any) -> SafeString:
        # On the page of one score nothing is left out.
        source = getattr(row, "shown_source", row.get_source_display())
        author = visible(one_line(row.author, NAME_CHARACTERS))
        return format_html('{} <span class="quiet">{}</span>', author, source) if source else author

    @admin.display(description=gettext_lazy("created"))
    def created(self, row: Score) -> SafeString:
        return ago(row.created_at)


def _url_of(model: str, key: Any) -> str:
    return reverse(f"admin:messages_app_{model}_change", args=[quote(key)])
