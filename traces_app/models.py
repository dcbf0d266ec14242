"""Models of a run: steps, tools, calls and results below its message, its events, and the contexts that these refer to.

Steps, calls, results, events and contexts are partitioned by month like their message and carry its time in their ids, so
that a whole trace is in one month of every table. `objects` excludes rows below a deleted message or session.
"""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from access_app.encryption.fields import EncryptedJSON, EncryptedText
from access_app.models import Project
from access_app.people import PersonKey
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import Message, Session, is_alive
from messages_app.safe_text import one_line
from tracesite_sdk.records import ids

PER_MILLION: dict[str, Any] = {
    "max_digits": 14,
    "decimal_places": 6,
    "validators": [MinValueValidator(0)],
}
"""USD for a million tokens."""


class Tool(models.Model):
    """A named tool of a project, created at its first call."""

    project = models.ForeignKey(Project, models.PROTECT, verbose_name=_("project"), db_index=False)
    name = models.TextField(_("name"))
    description = models.TextField(_("description"), blank=True, default="")
    category = models.TextField(_("category"), blank=True, default="")

    class Meta:
        verbose_name = _("tool")
        verbose_name_plural = _("tools")
        ordering = ["project", "name"]
        constraints = [
            # Serves the lookup by name; concurrent first calls of a tool get one row.
            models.UniqueConstraint(fields=["project", "name"], name="tool_name"),
        ]

    def __str__(self) -> str:
        return one_line(self.name, 80) or str(_("(no name)"))


class ModelPrice(models.Model):
    """The price of a model in a range of days, in USD per million tokens. See normalize/pricing.py for the names."""

    project = models.ForeignKey(
        Project,
        models.CASCADE,
        verbose_name=_("project"),
        null=True,
        blank=True,
        db_index=False,
        related_name="+",
        help_text=_("Empty: for all projects. A price of the project goes before it."),
    )
    model = models.TextField(
        _("model"), help_text=_("A name, or its beginning with a * at the end. Case does not matter.")
    )
    valid_from = models.DateField(_("valid from"), null=True, blank=True, help_text=_("UTC. Empty: always."))
    valid_until = models.DateField(_("valid until"), null=True, blank=True, help_text=_("The last day, UTC."))
    input = models.DecimalField(_("input"), **PER_MILLION)
    cached_input = models.DecimalField(_("cached input"), null=True, blank=True, **PER_MILLION)
    """Read from a cache. Null: the same as `input`."""
    cache_write = models.DecimalField(_("cache write"), null=True, blank=True, **PER_MILLION)
    """Null: the same as `input`."""
    output = models.DecimalField(_("output"), **PER_MILLION)
    reasoning = models.DecimalField(_("reasoning"), null=True, blank=True, **PER_MILLION)
    """Null: the same as `output`."""
    as_of = models.DateField(_("as of"), help_text=_("The day on which the published price was read."))
    source = models.TextField(_("source"), blank=True, default="", help_text=_("Where the price was published."))

    class Meta:
        verbose_name = _("model price")
        verbose_name_plural = _("model prices")
        ordering = ["model", "project", "-valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "model", "valid_from"], nulls_distinct=False, name="price_of_model"
            ),
        ]

    def __str__(self) -> str:
        return one_line(self.model, 80)

    def first_day(self) -> date:
        """Return a day even if there is no first one, so that prices can be sorted."""
        return self.valid_from or date.min

    def overlaps(self, other: ModelPrice) -> bool:
        """Return whether two prices of a model contradict each other. One without a last day ends where the next one begins."""
        earlier, later = sorted((self, other), key=ModelPrice.first_day)
        return earlier.valid_until is not None and earlier.valid_until >= later.first_day()

    def clean(self) -> None:
        self.model = self.model.strip().lower()
        if not self.model.rstrip("*") or "*" in self.model[:-1]:
            raise ValidationError({"model": _("Expected a name, or the beginning of names with one * at the end.")})
        if self.valid_from and self.valid_until and self.valid_until < self.valid_from:
            raise ValidationError({"valid_until": _("It is before the first day.")})


class AgentStepQuerySet(models.QuerySet["AgentStep"]):
    def alive(self) -> AgentStepQuerySet:
        return self.filter(is_alive("message__"))


class LiveStepManager(models.Manager["AgentStep"]):
    def get_queryset(self) -> AgentStepQuerySet:
        return AgentStepQuerySet(self.model, using=self._db).alive()


class AgentStep(models.Model):
    """One think-act iteration."""

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    message = models.ForeignKey(
        Message, models.DO_NOTHING, verbose_name=_("message"), db_constraint=False, db_index=False, related_name="steps"
    )
    iteration = models.IntegerField(_("iteration"))
    """The agent's own number, from 0; may repeat."""
    ordinal = models.IntegerField(_("ordinal"))
    """Orders steps of the same iteration."""
    thought = EncryptedText(_("thought"), blank=True, default="")
    reasoning = EncryptedText(_("reasoning"), blank=True, default="")
    agent_name = models.TextField(_("agent"), blank=True, default="")
    model = models.TextField(_("model"), blank=True, default="")
    usage = EncryptedJSON(_("usage"), null=True, blank=True)
    said_cost = models.DecimalField(max_digits=20, decimal_places=10, null=True, blank=True)
    """USD, as its producer stated, which takes precedence."""
    cost = models.DecimalField(_("cost"), max_digits=20, decimal_places=10, null=True, blank=True)
    """USD: stated, or computed from the prices when the step was stored; null if the tokens or the price are unknown."""
    timestamp = models.DateTimeField(_("time"), null=True, blank=True)
    duration_ms = models.BigIntegerField(_("duration (ms)"), null=True, blank=True)
    time_to_first_token_ms = models.BigIntegerField(_("time to first token (ms)"), null=True, blank=True)
    input_ref = models.TextField(_("model input"), blank=True, default="")
    """The `ref` of the Context with what the model was asked; empty if unknown."""
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)

    objects = LiveStepManager()
    with_deleted = AgentStepQuerySet.as_manager()

    class Meta:
        verbose_name = _("agent step")
        verbose_name_plural = _("agent steps")
        default_manager_name = "objects"
        ordering = ["message", "iteration", "ordinal"]
        indexes = [
            # The steps of a page of messages, the foreign key of their leaf, and the deletion of a message.
            models.Index(fields=["message"], name="step_message"),
        ]

    def __str__(self) -> str:
        return f"{self.iteration}: {one_line(self.thought, 60)}"


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    def alive(self) -> ToolCallQuerySet:
        return self.filter(is_alive("message__"))

    def visible_to(self, scope: ProjectScope) -> ToolCallQuerySet:
        return visible_to(self, scope)


CallManager = models.Manager.from_queryset(ToolCallQuerySet)


class LiveCallManager(CallManager["ToolCall"]):
    def get_queryset(self) -> ToolCallQuerySet:
        return ToolCallQuerySet(self.model, using=self._db).alive()


class ToolCall(models.Model):
    """One call of a tool. `status` is its outcome, whatever its result contains."""

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        SUCCESS = "success", _("success")
        ERROR = "error", _("error")

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    message = models.ForeignKey(
        Message, models.DO_NOTHING, verbose_name=_("message"), db_constraint=False, db_index=False, related_name="calls"
    )
    step = models.ForeignKey(
        AgentStep, models.DO_NOTHING, verbose_name=_("step"), db_constraint=False, db_index=False, related_name="calls"
    )
    tool = models.ForeignKey(
        Tool, models.DO_NOTHING, verbose_name=_("tool"), db_constraint=False, db_index=False, related_name="calls"
    )
    parent = models.ForeignKey(
        "self",
        models.DO_NOTHING,
        verbose_name=_("parent call"),
        db_constraint=False,
        db_index=False,
        related_name="children",
        null=True,
        blank=True,
    )
    call_id = models.TextField(_("call id"), blank=True, default="")
    """The model's id; NOT unique."""
    position = models.IntegerField(_("position"))
    args = EncryptedJSON(_("arguments"), default=dict, blank=True)
    """Always an object; any other value is stored as {"_raw": ...}."""
    reflection = EncryptedText(_("reflection"), blank=True, default="")
    status = models.CharField(_("status"), max_length=16, choices=Status.choices, default=Status.PENDING)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    completed_at = models.DateTimeField(_("completed at"), null=True, blank=True)
    duration_ms = models.BigIntegerField(_("duration (ms)"), null=True, blank=True)
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)

    objects = LiveCallManager()
    with_deleted = ToolCallQuerySet.as_manager()

    class Meta:
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        default_manager_name = "objects"
        ordering = ["-id"]
        indexes = [
            # The calls of a page of messages, the foreign key of their leaf, and the deletion of a message.
            models.Index(fields=["message"], name="call_message"),
            # A page of a project's calls.
            models.Index(fields=["project", "id"], name="call_project_page"),
            # ?tool=, on calls and on messages, and a tool's statistics.
            models.Index(fields=["tool", "id"], name="call_tool_page"),
            # ?status=error and ?status=pending, of a project and of a tool: few rows among many.
            models.Index(
                fields=["project", "status", "id"], condition=~Q(status="success"), name="call_project_status"
            ),
            models.Index(fields=["tool", "status", "id"], condition=~Q(status="success"), name="call_tool_status"),
            # ?call_id=
            models.Index(fields=["call_id"], condition=~Q(call_id=""), name="call_call_id"),
        ]

    def __str__(self) -> str:
        return one_line(self.call_id, 80) or str(self.id)


class ToolPeriod(models.Model):
    """The finished calls of a tool with one status in one hour or day (UTC), added up; see traces_app.maintenance.tool_roll_up.

    A call belongs to the time in its id, which is that of its message. Calls of deleted messages do not count.
    """

    class Unit(models.TextChoices):
        HOUR = "hour"
        DAY = "day"

    project = models.ForeignKey(Project, models.CASCADE, db_index=False, related_name="+")
    tool = models.ForeignKey(Tool, models.CASCADE, db_index=False, related_name="+")
    unit = models.CharField(max_length=4, choices=Unit.choices)
    begin = models.DateTimeField()
    status = models.CharField(max_length=16, choices=ToolCall.Status.choices)
    calls = models.BigIntegerField()
    timed_calls = models.BigIntegerField()
    """Calls with a known duration: those in the histogram."""
    total_ms = models.FloatField()
    """A float, because the durations of hostile calls would exceed a bigint."""
    longest_ms = models.BigIntegerField(null=True)
    cost = models.DecimalField(max_digits=20, decimal_places=10, null=True)
    """USD, of the calls whose share of the cost of their step is known; null if it is of none."""
    priced_calls = models.BigIntegerField()
    """Calls whose share is known."""
    buckets = ArrayField(models.IntegerField())
    """The numbers of the buckets that are not empty, in order; see traces_app.queries.histograms."""
    counts = ArrayField(models.BigIntegerField())
    """The calls in each of `buckets`."""

    class Meta:
        constraints = [
            # Serves the statistics of tools in a range of times.
            models.UniqueConstraint(fields=["tool", "unit", "begin", "status"], name="tool_period"),
        ]
        indexes = [
            # The periods that are computed again, and those of a dropped month.
            models.Index(fields=["begin", "unit", "project"], name="tool_period_begin"),
        ]

    def __str__(self) -> str:
        return f"{self.tool_id} {self.unit} {self.begin:%Y-%m-%d %H:00} {self.status}"


class ToolRollUp(models.Model):
    """The progress of the roll-up, in one row: ToolPeriod has all hours before `rolled_until` and all days that ended by then."""

    ONLY = 1

    id = models.IntegerField(primary_key=True, default=ONLY)
    rolled_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.rolled_until:%Y-%m-%d %H:00}"


class ToolResult(models.Model):
    """The outcome of a call, under the same id."""

    call = models.OneToOneField(
        ToolCall,
        models.DO_NOTHING,
        verbose_name=_("call"),
        primary_key=True,
        db_column="id",
        db_constraint=False,
        related_name="result",
    )
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    output = EncryptedText(_("output"), blank=True, default="")
    """For people."""
    data = EncryptedJSON(_("data"), null=True, blank=True)
    """For machines."""
    error = EncryptedText(_("error"), blank=True, default="")
    """Never empty for a failed call."""
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)
    attachments = EncryptedJSON(_("attachments"), default=list, blank=True)
    raw = EncryptedText(_("raw text"), null=True, blank=True)
    """The text as received, if it differs from `output`."""

    class Meta:
        verbose_name = _("tool result")
        verbose_name_plural = _("tool results")

    def __str__(self) -> str:
        return str(self.call_id)


class Event(models.Model):
    """An event of a run, append-only: never changed, and removed only with its message or session.

    Its id carries the time of its message, like the ids of steps and calls, so that a run is in one month of every table.
    """

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,
        verbose_name=_("session"),
        db_constraint=False,
        db_index=False,
        related_name="events",
    )
    message = models.ForeignKey(
        Message,
        models.DO_NOTHING,
        verbose_name=_("message"),
        db_constraint=False,
        db_index=False,
        related_name="events",
    )
    seq = models.BigIntegerField(_("number"))
    """Its number in the session, from 1 without gaps, in the order of arrival. Unique because it is assigned under the lock
    of the session's row; a unique index of a partitioned table would have to include the id."""
    external_id = models.TextField(_("external id"))
    """The producer's id, or one derived from the content, by which a second delivery is recognised."""
    number = models.BigIntegerField(_("producer's number"), null=True, blank=True)
    """Orders the events of a session, in whatever order they arrive."""
    type = models.TextField(_("type"))
    level = models.TextField(_("level"))
    category = models.TextField(_("category"))
    timestamp = models.DateTimeField(_("time"))
    agent = models.TextField(_("agent"), blank=True, default="")
    subject = models.TextField(_("subject"), blank=True, default="")
    """The step, the call or the run that the event is about, within its message."""
    data = EncryptedJSON(_("data"), default=dict, blank=True)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ["session", "seq"]
        indexes = [
            # The events of a session after a number.
            models.Index(fields=["session", "seq"], name="event_session_seq"),
            # Recognition of duplicates.
            models.Index(fields=["session", "external_id"], name="event_external_id"),
            # The earlier events of a step, a call or a run.
            models.Index(fields=["session", "subject"], name="event_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.seq}: {self.type}"


class Context(models.Model):
    """A prompt, a conversation, variables, a large value or the input of a step, to which events and steps of a run refer.

    It is identified by a digest of its content and stored once for each run. The entries of conversations and inputs are
    stored once for each session and month: see traces_app.ingest.context_rows.
    """

    id = models.UUIDField(_("id"), primary_key=True)
    """Derived from `ref` and its run, or the session and month of an entry."""
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,
        verbose_name=_("session"),
        db_constraint=False,
        db_index=False,
        related_name="contexts",
    )
    message = models.ForeignKey(
        Message,
        models.DO_NOTHING,
        verbose_name=_("message"),
        db_constraint=False,
        db_index=False,
        related_name="contexts",
        null=True,
        blank=True,
    )
    """Its run; null for an entry, which several runs may share."""
    ref = models.TextField(_("reference"))
    """The reference in events and steps: the same for the same content, in all runs."""
    kind = models.TextField(_("kind"))
    """See contexts.Kind; an `entry` is only read as a part of others."""
    length = models.BigIntegerField(_("length"))
    """Characters of a text, entries of a conversation, messages of an input, variables, bytes of anything else."""
    size = models.BigIntegerField(_("bytes"))
    """Size as JSON, with all entries."""
    content = EncryptedJSON(_("content"))
    """{"text": ..., "variables": {...}}, with the keys that the context has, or {"value": ...}; of an input {"parameters":
    {...}, "system": 0 or 1, "tools": their number}."""
    entries = ArrayField(models.UUIDField(), verbose_name=_("entries"), null=True, blank=True)
    """The rows of a conversation, in order; of an input its system prompt, its tools and its messages."""
    created_at = models.DateTimeField(_("created at"))
    """The time of the first event or step that refers to it."""

    class Meta:
        verbose_name = _("context")
        verbose_name_plural = _("contexts")
        ordering = ["-id"]
        indexes = [
            # A page of a session's contexts.
            models.Index(fields=["session", "id"], condition=~Q(kind="entry"), name="context_session_page"),
            # The context of a reference.
            models.Index(fields=["session", "ref"], condition=~Q(kind="entry"), name="context_ref"),
            # The removal of entries.
            models.Index(fields=["session"], condition=Q(kind="entry"), name="context_entries"),
        ]

    def __str__(self) -> str:
        return self.ref

    @staticmethod
    def id_of(message_id: UUID, ref: str) -> UUID:
        """Return the id of the context of a run with this reference."""
        return ids.child_id(message_id, "context", ref)


class Span(models.Model):
    """One delivery of a span, of a log record that belongs to one, or of a file of a trace, as it came but redacted; its content
    is never changed.

    Spans come in any order, in pieces and repeatedly, so the rows of a trace are made anew of all its deliveries after
    some arrived (traces_app.spans.projection). The id carries the time of the span, and is a digest of the content, for a file
    of its name: a repeated delivery is the same row.
    """

    class Kind(models.TextChoices):
        SPAN = "span", _("span")
        LOG = "log", _("log record")
        MEDIA = "media", _("media")

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    trace_id = models.UUIDField(_("trace"))
    """Its trace, or the one under which its trace is stored because they share a call."""
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices, default=Kind.SPAN)
    """Of a delivery; or JOINED of traces_app.ingest.joined_traces, in a row that is none."""
    content = EncryptedText(_("content"))
    """JSON text of spans.span.Span or LogRecord, of spans.media.Media, or of a JoinedTrace: as text, because jsonb would lose the
    difference of 1 and 1.0, and the order."""

    class Meta:
        verbose_name = _("span")
        verbose_name_plural = _("spans")
        ordering = ["id"]
        indexes = [
            # All deliveries of a trace.
            models.Index(fields=["project", "trace_id"], name="span_trace"),
            # Asked of each delivery, however many spans its trace has.
            models.Index(fields=["project", "trace_id"], condition=models.Q(kind="joined"), name="span_joined"),
        ]

    def __str__(self) -> str:
        return f"{self.trace_id.hex}"


class DueTrace(models.Model):
    """A trace whose messages are made, or will be: see traces_app.spans.due. Those that are left alone have no row."""

    pk = models.CompositePrimaryKey("project_id", "trace_id")
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    trace_id = models.UUIDField()
    version = models.BigIntegerField()
    """Grows with each delivery: microseconds since 1970, so that those of a row that was removed are lower."""
    made_version = models.BigIntegerField(default=0)
    """Of which its messages were made last; of a new row the one before."""
    is_over = models.BooleanField(default=False)
    """Whether its root has ended since its messages were made last."""
    due_at = models.DateTimeField(null=True)
    """When its messages are made again; null if they are those of all deliveries."""
    rests_until = models.DateTimeField(null=True)
    """Before this time they are only made if its root has ended."""
    taken_until = models.DateTimeField(null=True)
    """Until then nobody else begins to make them."""
    attempts = models.PositiveSmallIntegerField(default=0)
    """How often making them was begun since it last succeeded."""
    used_at = models.DateTimeField()
    """The time of the last delivery."""
    digests = models.BinaryField(default=b"")
    """Of the rows of its messages; see traces_app.ingest.overwriting."""

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="due_trace_time")]

    def __str__(self) -> str:
        return self.trace_id.hex


class ScoreQuerySet(models.QuerySet["Score"]):
    def alive(self) -> ScoreQuerySet:
        """Return the scores that are not deleted, nor what they are about."""
        # Joins and not EXISTS, because beside an OR the planner would hash all messages. The times tell a row from a missing one.
        message = Q(message__created_at__isnull=False, message__session__created_at__isnull=False) & is_alive(
            "message__"
        )
        session = Q(session__created_at__isnull=False, session__deleted_at__isnull=True)
        return self.filter(
            Q(message__isnull=True) | message, Q(session__isnull=True) | session, deleted_at__isnull=True
        )

    def visible_to(self, scope: ProjectScope) -> ScoreQuerySet:
        return visible_to(self, scope)


ScoreManager = models.Manager.from_queryset(ScoreQuerySet)


class LiveScoreManager(ScoreManager["Score"]):
    def get_queryset(self) -> ScoreQuerySet:
        return ScoreQuerySet(self.model, using=self._db).alive()


class Score(models.Model):
    """The judgement of a person, a program or an evaluator about a session, a message or a call.

    Not partitioned, because there are few, and a score may be older or younger by months than what it is about. A score
    of a trace or session that has not arrived is pending: its `session` is empty until then (traces_app.ingest.scores).
    """

    class Kind(models.TextChoices):
        NUMERIC = "numeric", _("numeric")
        BOOLEAN = "boolean", _("yes or no")
        CATEGORICAL = "categorical", _("categorical")

    class Source(models.TextChoices):
        PERSON = "person", _("person")
        PROGRAM = "program", _("program")
        EVALUATOR = "evaluator", _("evaluator")

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(Project, models.CASCADE, verbose_name=_("project"), db_index=False, related_name="+")
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,
        verbose_name=_("session"),
        db_constraint=False,
        db_index=False,
        related_name="scores",
        null=True,
        blank=True,
    )
    message = models.ForeignKey(
        Message,
        models.DO_NOTHING,
        verbose_name=_("message"),
        db_constraint=False,
        db_index=False,
        related_name="scores",
        null=True,
        blank=True,
    )
    call = models.ForeignKey(
        ToolCall,
        models.DO_NOTHING,
        verbose_name=_("tool call"),
        db_constraint=False,
        db_index=False,
        related_name="scores",
        null=True,
        blank=True,
    )
    session_name = models.TextField(_("session (external id)"), blank=True, default="")
    message_name = models.TextField(_("message (external id)"), blank=True, default="")
    call_name = models.TextField(_("call id"), blank=True, default="")
    """These names find the rows again when a trace is made anew of its spans, which may change their ids."""
    trace_id = models.UUIDField(_("trace"), null=True, blank=True)
    span_id = models.CharField(_("span"), max_length=16, blank=True, default="")
    name = models.TextField(_("name"))
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    number = models.FloatField(_("value"), null=True, blank=True)
    """Also of yes (1) and no (0)."""
    label = models.TextField(_("label"), blank=True, default="")
    """The category; a word beside a number, if its sender gave one."""
    comment = EncryptedText(_("comment"), blank=True, default="")
    source = models.CharField(_("source"), max_length=16, choices=Source.choices)
    author = models.TextField(_("author"), blank=True, default="")
    external_id = models.TextField(_("external id"), null=True, blank=True)  # noqa: DJ001 - several have none
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)
    redactions = models.JSONField(_("redactions"), default=list, blank=True)
    created_at = models.DateTimeField(_("created at"))
    updated_at = models.DateTimeField(_("updated at"))
    deleted_at = models.DateTimeField(_("deleted at"), null=True, blank=True)
    """Only of a score that would come back with its spans."""

    objects = LiveScoreManager()
    with_deleted = ScoreQuerySet.as_manager()

    class Meta:
        verbose_name = _("score")
        verbose_name_plural = _("scores")
        default_manager_name = "objects"
        ordering = ["-id"]
        constraints = [
            # A score that is sent again is the same row.
            models.UniqueConstraint(fields=["project", "external_id"], name="score_external_id"),
        ]
        indexes = [
            # A page of a project's scores.
            models.Index(fields=["project", "id"], name="score_page"),
            # ?name=, ?score= of messages and sessions.
            models.Index(fields=["project", "name", "number"], name="score_name"),
            # The scores of a session and of a message, and their purge.
            models.Index(fields=["session", "id"], name="score_session"),
            models.Index(fields=["message", "id"], name="score_message", condition=Q(message__isnull=False)),
            # The scores of a trace that is made anew.
            models.Index(fields=["project", "trace_id"], name="score_trace", condition=Q(trace_id__isnull=False)),
            # Those that wait for their session.
            models.Index(fields=["project", "session_name"], name="score_pending", condition=Q(session__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{one_line(self.name, 80)}: {self.shown_value}"

    @property
    def value(self) -> bool | float | str | None:
        """The value in the type of its kind."""
        if self.kind == self.Kind.CATEGORICAL:
            return self.label or None
        return bool(self.number) if self.kind == self.Kind.BOOLEAN and self.number is not None else self.number

    @property
    def shown_value(self) -> str:
        """The value for people."""
        if self.kind == self.Kind.CATEGORICAL:
            return one_line(self.label, 80)
        if self.kind == self.Kind.BOOLEAN:
            return str(_("yes") if self.number else _("no"))
        number = "" if self.number is None else f"{self.number:g}"
        return f"{number} {one_line(self.label, 80)}".strip()


class SearchSegment(models.Model):
    """A part of the search index: up to 65,536 rows of messages of one month. Never changed; merged into larger ones.

    See traces_app.queries.search.
    """

    id = models.UUIDField(primary_key=True)
    """Carries a time of the month of its rows."""
    rows = models.IntegerField()
    first_message = models.UUIDField()
    last_message = models.UUIDField()
    """The range of its messages."""
    first_session = models.UUIDField()
    last_session = models.UUIDField()
    """The range of their sessions."""
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.id)


class SearchRows(models.Model):
    """The rows that 1,024 numbers of a segment stand for."""

    pk = models.CompositePrimaryKey("segment_id", "chunk")
    segment_id = models.UUIDField(db_column="id")
    chunk = models.IntegerField()
    rows = models.BinaryField()
    """See traces_app.queries.search.segments.ROW."""

    def __str__(self) -> str:
        return f"{self.segment_id} {self.chunk}"


class SearchPosting(models.Model):
    """A page of a segment: some grams in order, and the rows that have each."""

    pk = models.CompositePrimaryKey("segment_id", "gram")
    segment_id = models.UUIDField(db_column="id")
    gram = models.BigIntegerField()
    """The first one."""
    rows = models.BinaryField()
    """See traces_app.queries.search.segments.encode_pages."""

    def __str__(self) -> str:
        return f"{self.segment_id} {self.gram}"


class EmbedderInUse(models.Model):
    """The embedder of the stored vectors, in one row, which another embedder replaces."""

    name = models.TextField()
    """See traces_app.queries.embedders."""
    width = models.IntegerField()
    """The numbers of an embedded question."""

    def __str__(self) -> str:
        return self.name


class RunVector(models.Model):
    """The vector of a run, by which similar ones are found. It goes with its message."""

    message = models.OneToOneField(
        Message, models.DO_NOTHING, primary_key=True, db_column="id", db_constraint=False, related_name="vector"
    )
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    embedder_id = models.IntegerField()
    """The id of an EmbedderInUse; the vectors of earlier ones are not read."""
    vector = models.BinaryField()
    """See traces_app.queries.run_vectors.stored_type."""

    class Meta:
        indexes = [
            # The newest vectors of a project.
            models.Index(fields=["project", "message"], name="vector_project_page"),
        ]

    def __str__(self) -> str:
        return str(self.message_id)


class ErrorPattern(models.Model):
    """The pattern of the error of a failed call, by which errors are grouped; see traces_app.maintenance.error_patterns.

    It goes with its message. Those of encrypted projects are not stored.
    """

    call = models.OneToOneField(
        ToolCall,
        models.DO_NOTHING,
        primary_key=True,
        db_column="id",
        db_constraint=False,
        related_name="error_pattern",
    )
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    message = models.ForeignKey(Message, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    pattern = models.TextField()
    """See traces_app.queries.error_patterns."""

    class Meta:
        indexes = [
            # The patterns of a message that changes or goes.
            models.Index(fields=["message"], name="error_pattern_message"),
        ]

    def __str__(self) -> str:
        return one_line(self.pattern, 80)


class ErrorGroupState(models.Model):
    """What people decided about the errors of a project that have one pattern. See traces_app.admin.error_states."""

    class State(models.TextChoices):
        OPEN = "open", _("open")
        RESOLVED = "resolved", _("resolved")
        IGNORED = "ignored", _("ignored")

    project = models.ForeignKey(Project, models.CASCADE, db_index=False, related_name="+")
    group = models.CharField(max_length=32)
    """The id of a traces_app.queries.error_groups.Group. Another one after a version that makes other patterns."""
    state = models.CharField(max_length=8, choices=State.choices)
    note = models.TextField(blank=True, default="")
    by = PersonKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField()

    class Meta:
        verbose_name = _("state of an error")
        verbose_name_plural = _("states of errors")
        constraints = [models.UniqueConstraint(fields=["project", "group"], name="state_of_error_group")]

    def __str__(self) -> str:
        return f"{self.group}: {self.state}"


class SealLayout(models.Model):
    """The columns that seals cover. A later version may add columns; its seals then have another layout."""

    digest = models.BinaryField(unique=True)
    """SHA-256 of `columns`."""
    columns = models.JSONField()
    """[[kind of rows, [column, ...]], ...]: see traces_app.maintenance.seals.rows."""

    def __str__(self) -> str:
        return str(self.pk)


class SealBatch(models.Model):
    """Seals that were made together, and a link of the chain of all of them; see traces_app.maintenance.seals."""

    class Kind(models.TextChoices):
        SEALS = "seals"
        MONTH = "month"
        """A purge dropped the period, with its messages and their seals."""

    id = models.BigIntegerField(primary_key=True)
    """From 1 without gaps."""
    kind = models.CharField(max_length=5, choices=Kind.choices)
    project = models.ForeignKey(
        Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+", null=True
    )
    month = models.DateField()
    """The first day of the period of the messages."""
    sealed_at = models.DateTimeField()
    layout = models.ForeignKey(SealLayout, models.PROTECT, db_index=False, related_name="+", null=True)
    key_id = models.CharField(max_length=8)
    count = models.IntegerField()
    members = models.BinaryField()
    """The ids of the messages, 16 bytes each, in order; empty after the period was dropped."""
    digest = models.BinaryField()
    """SHA-256 of the ids and their seals."""
    mac = models.BinaryField()
    """HMAC of all other columns but the members, and of the batch before it."""

    class Meta:
        indexes = [
            # The batches of a range of months.
            models.Index(fields=["month", "id"], name="seal_batch_month"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class MessageSeal(models.Model):
    """The state of a message when a batch was sealed. Never changed: a message that changes gets another one."""

    class State(models.TextChoices):
        SEALED = "s"
        OPEN = "o"
        """It was opened again."""
        REMOVED = "r"

    pk = models.CompositePrimaryKey("message_id", "batch")
    message_id = models.UUIDField(db_column="id")
    project = models.ForeignKey(
        Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+", null=True
    )
    """That of its batch."""
    batch = models.BigIntegerField()
    """The number of its SealBatch."""
    state = models.CharField(max_length=1, choices=State.choices)
    kinds = models.IntegerField()
    """The kinds of rows that the message has, by bit in the order of the layout."""
    parts = models.BinaryField()
    """An HMAC of 16 bytes for the rows of each of `kinds`."""
    nonces = models.BinaryField()
    """The nonces of the tokens that led to it, 8 bytes each, so that none of them counts again."""
    mac = models.BinaryField()
    """HMAC of 16 bytes of the columns above."""

    def __str__(self) -> str:
        return f"{self.message_id} {self.batch}"


class Archive(models.Model):
    """The archive of a project and period in one folder, as its manifest says; see traces_app.maintenance.archive."""

    id = models.UUIDField(primary_key=True)
    """That of the manifest."""
    project = models.ForeignKey(Project, models.CASCADE, db_index=False, related_name="+")
    month = models.DateField()
    """The first day of the period."""
    period = models.TextField(default="", db_default="")
    """Its name, such as 2026-01: see messages_app.sql.periods. Empty of a month that the version before wrote."""
    url = models.TextField()
    rows = models.BigIntegerField()
    fingerprint = models.TextField()
    """The fingerprint of the archived rows in the database, by which a later archive recognises that nothing has changed."""
    created_at = models.DateTimeField()
    dropped_at = models.DateTimeField(null=True)
    """When its rows were removed from the database; null if they were not, or were restored."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "month", "period", "url"], name="archive_of_period"),
        ]

    def __str__(self) -> str:
        return f"{self.url} {self.period}"


class ArchivedSession(models.Model):
    """A session of an archive, by which its page says where it is."""

    archive = models.ForeignKey(Archive, models.CASCADE, related_name="sessions")
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    key = models.UUIDField()
    """Digest of the project and the id of the session or its external id: see messages_app.models.session_key."""

    class Meta:
        indexes = [
            # The archives of a session.
            models.Index(fields=["key"], name="archived_session_key"),
        ]

    def __str__(self) -> str:
        return str(self.key)


class SnapshotSums(models.Model):
    """The sums of the snapshots of a session; the row by which writers of its snapshots wait for each other."""

    session = models.OneToOneField(
        Session, models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="snapshot_sums"
    )
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    generation = models.IntegerField(default=0)
    """The number of times that the contents were removed."""
    size = models.BigIntegerField(default=0)
    """Bytes of the parts."""
    left_out = models.JSONField(default=dict)
    """Snapshots that were not kept, by reason."""
    fork = models.JSONField(null=True)
    """The fields of records.Fork, if this is a replay."""

    def __str__(self) -> str:
        return str(self.session_id)


class Snapshot(models.Model):
    """The context that nodes of an agent were about to use. Its content is in parts."""

    id = models.UUIDField(_("id"), primary_key=True)
    """Derived from its time, session and external id."""
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    session = models.ForeignKey(
        Session, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="snapshots"
    )
    external_id = models.TextField(_("external id"))
    ts = models.BigIntegerField()
    """Nanoseconds since 1970, UTC."""
    node_ids = ArrayField(models.TextField())
    context_ref = models.TextField()
    """The part with which the context begins."""
    notes = models.JSONField(default=list)
    redactions = models.JSONField(default=list)
    is_purged = models.BooleanField(default=False)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["session", "id"], name="snapshot_session_page")]
        constraints = [models.UniqueConstraint(fields=["external_id", "session"], name="snapshot_external_id")]

    def __str__(self) -> str:
        return self.external_id


class SnapshotPart(models.Model):
    """A part of contexts of a session: see tracesite_sdk.records.snapshot_parts."""

    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    session = models.ForeignKey(Session, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    ref = models.TextField()
    content = models.BinaryField()
    """JSON."""
    below = ArrayField(models.TextField())
    """The parts that it names."""
    assembled_size = models.BigIntegerField(null=True)
    assembled_depth = models.BigIntegerField(null=True)
    """`Measure` of what it stands for; null if that is unknown, as of parts that an earlier version has stored."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "ref"], name="snapshot_part")]

    def __str__(self) -> str:
        return self.ref


class Erasure(models.Model):
    """The receipt of a command that erased what belongs to a person: what, how many and when, without content."""

    id = models.UUIDField(primary_key=True)
    kind = models.TextField()
    """`end_user`, `session` or `match`."""
    subject = models.TextField()
    """HMAC of what was searched for, by the secret key of the site, hexadecimal."""
    projects = ArrayField(models.TextField())
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    """Null if it was interrupted; then the next one removes the rest."""
    found = models.JSONField()
    """The rows to be removed, by table."""
    removed = models.JSONField(default=dict)
    """The rows that were removed, by table, and the segments of the search index."""
    ids_sha256 = models.TextField()
    """The digest of the ids of the sessions and messages, as text in order, a line each."""
    archives = models.JSONField(default=list)
    """[{url, project, period, rows, before, after}, ...]: rows removed, and SHA-256 of the manifests."""

    def __str__(self) -> str:
        return str(self.id)


class JobRun(models.Model):
    """The last run of a job of traces_app.maintenance.jobs."""

    name = models.CharField(primary_key=True, max_length=64)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    """Null while it runs, and after its process was killed."""
    next_at = models.DateTimeField()
    """When it is due again."""
    succeeded_at = models.DateTimeField(null=True)
    """The end of the last run without an error."""
    error = models.TextField(default="")
    """The error of the last run, without content of traces."""
    counts = models.JSONField(default=dict)
    """Results of the last run: numbers by name."""

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")

    def __str__(self) -> str:
        return self.name


class MaskingRun(models.Model):
    """Masking rules that are applied to the stored traces of a project in the background: see maintenance.masking_runs."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", verbose_name=_("project"))
    rules = models.JSONField()
    """Name, kind and value of each, as they were when it was asked for."""
    requested_by = PersonKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("requested by")
    )
    requested_at = models.DateTimeField(_("requested at"))
    reached = models.UUIDField(null=True)
    """The last message that is done."""
    read = models.BigIntegerField(default=0)
    """Messages and sessions; those that a killed process has read twice count twice."""
    changed = models.BigIntegerField(default=0)
    removed = models.JSONField(default=dict)
    """Numbers of removed values, by name of the rule."""
    finished_at = models.DateTimeField(_("finished at"), null=True)
    error = models.TextField(default="")
    """Why nothing more is done."""

    class Meta:
        verbose_name = _("masking of stored traces")
        verbose_name_plural = _("masking of stored traces")
        constraints = [
            models.UniqueConstraint(
                fields=["project"], condition=models.Q(finished_at=None), name="one_masking_run_of_a_project"
            )
        ]

    def __str__(self) -> str:
        return f"{self.project_id}: {self.requested_at}"
