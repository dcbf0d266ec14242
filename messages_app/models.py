"""Sessions, messages and their references, with soft delete; and the saved views and chosen columns of lists.

`objects` excludes deleted rows and the rows of deleted sessions. `with_deleted` includes them, for the trash, restore and
purge. People delete only sessions and messages; the rows below a message follow it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Case, Exists, F, Func, OuterRef, Q, Value, When
from django.db.models.fields.json import KT, KeyTextTransform
from django.db.models.functions import Cast, Greatest, Now
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from access_app.encryption.fields import EncryptedJSON, EncryptedText
from access_app.models import Project
from access_app.people import PersonKey
from access_app.visibility import ProjectScope, visible_to
from tracesite_sdk.records import ids

from .safe_text import one_line
from .sql.periods import Period

HAS_PROBLEMS = Q(problem_count__gt=0)
"""Sessions with a failed call, a model error, or a run with an error."""
HAS_ERRORS = Q(failure_count__gt=0) | ~Q(error="") | Q(model_error_count__gt=0)
"""Messages with a failed call, a model error, or an error of their own."""
NONE_DECIDED = UUID(int=0)
HAS_FAILED = HAS_ERRORS & (
    ~Q(error="") | Q(failure_count__gt=0) & (Q(decided_by__isnull=True) | ~Q(decided_by=NONE_DECIDED))
)
"""Messages that ended badly: with an error of their own, or with a failed call that no later one made good. The first condition
is that of an index."""
UNKNOWN_IN_MESSAGE = Case(When(is_completed=True, then="unpriced_count"), default=0)
"""Requests of unknown cost: those of a run that goes on have none yet."""
UNKNOWN_IN_SESSION = Greatest(F("unpriced_count") - F("open_count"), 0)
"""The same of a session, in which each run that goes on usually waits for one request."""
WAITS = Q(session__status="paused")
"""Open messages of a session that its agent paused: they wait for a person, for example for an approval."""


def is_alive(message: str = "") -> Q:
    """Return the condition that neither the message nor its session is deleted; `message` is a path such as `message__`."""
    return Q(**{f"{message}deleted_at__isnull": True, f"{message}session__deleted_at__isnull": True})


FORKED_FROM = KT("metadata__forked_from__session")
"""The id of the session that a replay of an agent's node has replayed, external or ours."""
IS_FORK = Q(metadata__has_key="forked_from")


class SessionQuerySet(models.QuerySet["Session"]):
    def alive(self) -> SessionQuerySet:
        return self.filter(deleted_at__isnull=True)

    def deleted(self) -> SessionQuerySet:
        return self.filter(deleted_at__isnull=False)

    def visible_to(self, scope: ProjectScope) -> SessionQuerySet:
        return visible_to(self, scope)


SessionManager = models.Manager.from_queryset(SessionQuerySet)


class LiveSessionManager(SessionManager["Session"]):
    def get_queryset(self) -> SessionQuerySet:
        return SessionQuerySet(self.model, using=self._db).alive()


class Session(models.Model):
    """One conversation or task. Writes keep its counters up to date."""

    class Status(models.TextChoices):
        PLANNING = "planning", _("planning")
        RUNNING = "running", _("running")
        PAUSED = "paused", _("paused")
        COMPLETED = "completed", _("completed")
        ERROR = "error", _("error")
        ABORTED = "aborted", _("aborted")

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(Project, models.PROTECT, verbose_name=_("project"), db_index=False)
    external_id = models.TextField(_("external id"), blank=True, default="")
    title = EncryptedText(_("title"), blank=True, default="")
    description = EncryptedText(_("description"), blank=True, default="")
    end_user = models.TextField(_("end user"), blank=True, default="")
    said_status = models.CharField(max_length=16, choices=Status.choices, blank=True, default="", db_default="")
    """The status that its producer stated, which takes precedence; "" if the status follows from the messages."""
    status = models.GeneratedField(
        verbose_name=_("status"),
        expression=Case(
            When(is_abandoned=True, then=Value("aborted")),
            When(~Q(said_status=""), then="said_status"),
            When(open_count__gt=0, then=Value("running")),
            # A new session.
            When(message_count=0, last_run_id=None, then=Value("running")),
            When(~Q(last_interruption=""), last_interruption__isnull=False, then=Value("aborted")),
            When(last_run_failed=True, then=Value("error")),
            default=Value("completed"),
        ),
        output_field=models.CharField(max_length=16),
        choices=Status.choices,
        db_persist=True,
    )
    """Computed by PostgreSQL at each write of the row, so that lists, filters and pages agree and no list has to count."""
    current_phase = EncryptedText(_("current phase"), blank=True, default="")
    workflow = EncryptedJSON(_("workflow"), null=True, blank=True)
    tags = ArrayField(models.TextField(), verbose_name=_("tags"), default=list, blank=True)
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)
    redactions = models.JSONField(_("redactions"), default=list, blank=True)
    """Receipts of redactions: [{"path": "metadata.token", "rule": "token"}, ...]."""
    import_digests = models.BinaryField(default=b"", db_default=b"", blank=True)
    """Digests of the entries of an imported transcript, by which a later import recognises it; see transcripts.outline."""

    message_count = models.BigIntegerField(_("messages"), default=0)
    call_count = models.BigIntegerField(_("tool calls"), default=0)
    failure_count = models.BigIntegerField(_("failed calls"), default=0)
    problem_count = models.BigIntegerField(_("problems"), default=0, db_default=0)
    """Failed calls, model errors and runs with an error."""
    open_count = models.BigIntegerField(_("open messages"), default=0, db_default=0)
    last_run_id = models.UUIDField(null=True, blank=True)
    """Its newest assistant message; 0 if all of them were removed."""
    last_run_failed = models.BooleanField(default=False, db_default=False)
    """Whether that message has an error text."""
    last_interruption = models.CharField(max_length=16, null=True)  # noqa: DJ001 - null in rows of before, and of archives
    """Why that message was interrupted, if it was: see interruptions.py."""
    is_abandoned = models.BooleanField(null=True)
    """Whether close_stale_runs has closed the session: nothing was open, but it was not over. The next write opens it again."""
    input_tokens = models.BigIntegerField(_("input tokens"), default=0)
    output_tokens = models.BigIntegerField(_("output tokens"), default=0)
    duration_ms = models.BigIntegerField(_("duration (ms)"), default=0)
    cost_sum = models.DecimalField(max_digits=20, decimal_places=10, default=0, db_default=0)
    """USD, of the messages whose cost is known."""
    priced_count = models.BigIntegerField(default=0, db_default=0)
    """Messages whose cost is known."""
    unpriced_count = models.BigIntegerField(_("steps without a cost"), default=0, db_default=0)
    """Requests to models whose cost is unknown."""
    cost = models.GeneratedField(
        verbose_name=_("cost"),
        expression=Case(When(priced_count__gt=0, then="cost_sum")),
        output_field=models.DecimalField(max_digits=20, decimal_places=10, null=True),
        db_persist=True,
    )
    """USD; null if it is known of none of its messages."""
    last_event = models.BigIntegerField(_("events"), default=0, db_default=0)
    """The number of its last event; events are numbered from 1 without gaps."""

    created_at = models.DateTimeField(_("created at"))
    updated_at = models.DateTimeField(_("updated at"))
    active_at = models.DateTimeField(_("last activity"), db_default=Now())
    """The latest time of its messages and events. It increases by at least a second, so that not every write changes the
    index on it."""
    pinned_at = models.DateTimeField(_("pinned at"), null=True, blank=True)
    """Clients of WeKnora list pinned sessions first."""
    deleted_at = models.DateTimeField(_("deleted at"), null=True, blank=True)
    deleted_by = models.TextField(_("deleted by"), blank=True, default="")

    objects = LiveSessionManager()
    with_deleted = SessionQuerySet.as_manager()

    class Meta:
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        default_manager_name = "objects"
        ordering = ["-id"]
        constraints = [
            # Serves the lookup by external id; concurrent senders of a new external id get one row.
            models.UniqueConstraint(
                fields=["project", "external_id"], condition=~Q(external_id=""), name="session_external_id"
            ),
        ]
        indexes = [
            # A page of a project's sessions, newest first.
            models.Index(fields=["project", "id"], name="session_page"),
            # ?end_user=
            models.Index(fields=["project", "end_user", "id"], condition=~Q(end_user=""), name="session_end_user"),
            # ?tag=
            GinIndex(fields=["tags"], name="session_tags"),
            # The trash.
            models.Index(fields=["project", "id"], condition=Q(deleted_at__isnull=False), name="session_trash"),
            # The forks of a session.
            models.Index("project", FORKED_FROM, "id", condition=IS_FORK, name="session_forks"),
            # The trash by time of deletion.
            models.Index(
                fields=["deleted_at", "id"], condition=Q(deleted_at__isnull=False), name="session_trash_order"
            ),
            # By last activity.
            models.Index(fields=["active_at", "id"], name="session_active"),
            # ?status=; partial, because most sessions are completed.
            models.Index(
                fields=["project", "status", "id"], condition=~Q(status="completed"), name="session_not_completed"
            ),
            # ?has_errors=true
            models.Index(fields=["project", "id"], condition=HAS_PROBLEMS, name="session_problems"),
            # ?min_cost= and ?max_cost=
            models.Index(fields=["project", "cost"], condition=Q(cost__isnull=False), name="session_cost"),
        ]

    def __str__(self) -> str:
        return one_line(self.title, 80) or one_line(self.external_id, 80) or str(self.id)

    @property
    def goes_on(self) -> bool:
        return self.open_count > 0

    @property
    def unknown_count(self) -> int:
        """Requests of unknown cost: see UNKNOWN_IN_SESSION."""
        return max(self.unpriced_count - self.open_count, 0)


class MessageQuerySet(models.QuerySet["Message"]):
    def alive(self) -> MessageQuerySet:
        return self.filter(is_alive())

    def deleted(self) -> MessageQuerySet:
        """Return the messages that were deleted individually or with their session."""
        # A union of ids, because the index of the trash serves each half; an OR reads all messages.
        all_messages = MessageQuerySet(self.model).order_by().values("pk")
        alone = all_messages.filter(deleted_at__isnull=False)
        return self.filter(pk__in=alone.union(all_messages.filter(session__deleted_at__isnull=False)))

    def visible_to(self, scope: ProjectScope) -> MessageQuerySet:
        return visible_to(self, scope)

    def with_any(self, below: models.QuerySet[Any, Any]) -> MessageQuerySet:
        """Return the messages with at least one of the rows `below`, for example calls."""
        return self.filter(Exists(below.filter(message_id=OuterRef("pk"))))


MessageManager = models.Manager.from_queryset(MessageQuerySet)


class LiveMessageManager(MessageManager["Message"]):
    def get_queryset(self) -> MessageQuerySet:
        return MessageQuerySet(self.model, using=self._db).alive()


class Message(models.Model):
    """One message. An assistant message is an agent run; with at least one call it is also read as a chain.

    Partitioned by month of `id` (see partitions.py), so the writes and not the database enforce foreign keys.
    """

    class Role(models.TextChoices):
        USER = "user", _("user")
        ASSISTANT = "assistant", _("assistant")
        SYSTEM = "system", _("system")

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
        related_name="messages",
    )
    role = models.CharField(_("role"), max_length=16, choices=Role.choices)
    external_id = models.TextField(_("external id"), blank=True, default="")
    request_id = models.TextField(_("request id"), blank=True, default="")
    content = EncryptedText(_("content"), blank=True, default="")
    content_parts = EncryptedJSON(_("content parts"), null=True, blank=True)
    is_completed = models.BooleanField(_("completed"), default=True)
    usage = EncryptedJSON(_("usage"), null=True, blank=True)
    error = EncryptedText(_("error"), blank=True, default="")
    health = ArrayField(models.TextField(), verbose_name=_("health"), default=list, blank=True)
    redactions = models.JSONField(_("redactions"), default=list, blank=True)
    """Receipts of redactions: [{"path": "agent_steps[0].tool_calls[1].args.password", "rule": ...}, ...]."""
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)

    step_count = models.IntegerField(_("steps"), default=0)
    call_count = models.IntegerField(_("tool calls"), default=0)
    failure_count = models.IntegerField(_("failed calls"), default=0)
    model_error_count = models.IntegerField(_("model errors"), default=0, db_default=0)
    """Steps whose model request failed (`metadata.error`), also if the agent recovered from it."""
    input_tokens = models.BigIntegerField(_("input tokens"), default=0)
    output_tokens = models.BigIntegerField(_("output tokens"), default=0)
    duration_ms = models.BigIntegerField(_("duration (ms)"), null=True, blank=True)
    """From the message's time to its completion; without a time of completion, the sum of its steps."""
    cost = models.DecimalField(_("cost"), max_digits=20, decimal_places=10, null=True, blank=True)
    """USD, of the steps whose cost is known; null if there are none."""
    unpriced_count = models.IntegerField(_("steps without a cost"), default=0, db_default=0)
    """Steps with a model or tokens whose cost is unknown."""

    decided_by = models.UUIDField(null=True, blank=True)
    """The failed call that decided how the run ended (traces_app/queries/runs/); NONE_DECIDED if none did, null as long as that is
    not known, which is soon after the last write (traces_app/maintenance/error_patterns.py)."""

    version = models.IntegerField(_("version"), default=1)
    created_at = models.DateTimeField(_("created at"))
    """The time in `id`; immutable."""
    updated_at = models.DateTimeField(_("updated at"))
    completed_at = models.DateTimeField(_("completed at"), null=True, blank=True)
    deleted_at = models.DateTimeField(_("deleted at"), null=True, blank=True)
    deleted_by = models.TextField(_("deleted by"), blank=True, default="")

    objects = LiveMessageManager()
    with_deleted = MessageQuerySet.as_manager()

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        default_manager_name = "objects"
        ordering = ["-id"]
        indexes = [
            # A page of a session, by cursor or by time (a time is an id), and its first user message.
            models.Index(fields=["session", "id"], name="message_session_page"),
            # A page of a project, and any filter with a time range.
            models.Index(fields=["project", "id"], name="message_project_page"),
            # ?has_errors=true and failed chains.
            models.Index(fields=["project", "id"], condition=HAS_ERRORS, name="message_errors"),
            # ?is_completed=false: the open messages.
            models.Index(fields=["project", "id"], condition=Q(is_completed=False), name="message_running"),
            # ?health=; partial, because few messages have a flag.
            models.Index(fields=["project", "id"], condition=~Q(health=[]), name="message_health"),
            # ?role=system: few rows among many.
            models.Index(fields=["project", "id"], condition=Q(role="system"), name="message_system"),
            # ?min_cost= and ?max_cost=
            models.Index(fields=["project", "cost"], condition=Q(cost__isnull=False), name="message_cost"),
            # ?request_id=
            models.Index(fields=["request_id"], condition=~Q(request_id=""), name="message_request_id"),
            # ?external_id=
            models.Index(fields=["external_id"], condition=~Q(external_id=""), name="message_external_id"),
            # The trash.
            models.Index(fields=["project", "id"], condition=Q(deleted_at__isnull=False), name="message_trash"),
            # The trash by time of deletion.
            models.Index(
                fields=["deleted_at", "id"], condition=Q(deleted_at__isnull=False), name="message_trash_order"
            ),
            # ?root_tool= and ?tool= of chains: roots that trackers named.
            models.Index(
                KeyTextTransform("root_tool_id", "metadata"),
                condition=Q(metadata__has_key="root_tool_id"),
                name="message_root_tool",
            ),
        ]

    def __str__(self) -> str:
        time = f"{ids.created_at_of(self.id):%Y-%m-%d %H:%M:%S} UTC"
        return gettext("%(role)s message of %(time)s") % {"role": self.get_role_display(), "time": time}

    @property
    def goes_on(self) -> bool:
        return not self.is_completed

    @property
    def took_ms(self) -> int | None:
        """Its duration, None if that is unknown; as long as it goes on, the milliseconds since it began.

        A message that ends at the instant at which it begins has one time only, such as that of its only line in a transcript: how
        long it took is unknown.
        """
        if self.is_completed:
            return None if self.completed_at == self.created_at else self.duration_ms
        return max(round((timezone.now() - self.created_at).total_seconds() * 1000), 0)

    @property
    def unknown_count(self) -> int:
        """Requests of unknown cost: see UNKNOWN_IN_MESSAGE."""
        return 0 if self.goes_on else self.unpriced_count

    @property
    def has_errors(self) -> bool:
        return self.failure_count > 0 or self.model_error_count > 0 or self.error != ""

    @property
    def problem_count(self) -> int:
        """Failed calls, model errors, and its own error."""
        return self.failure_count + self.model_error_count + bool(self.error)


class Reference(models.Model):
    """One retrieved passage behind an answer; the fields of WeKnora's SearchResult."""

    id = models.UUIDField(_("id"), primary_key=True)
    project = models.ForeignKey(
        Project, models.DO_NOTHING, verbose_name=_("project"), db_constraint=False, db_index=False, related_name="+"
    )
    message = models.ForeignKey(
        Message,
        models.DO_NOTHING,
        verbose_name=_("message"),
        db_constraint=False,
        db_index=False,
        related_name="references",
    )
    position = models.IntegerField(_("position"))
    reference_id = models.TextField(_("reference id"), blank=True, default="")
    content = EncryptedText(_("content"), blank=True, default="")
    knowledge_id = models.TextField(_("knowledge id"), blank=True, default="")
    chunk_index = models.BigIntegerField(_("chunk index"), default=0)
    knowledge_title = EncryptedText(_("knowledge title"), blank=True, default="")
    start_at = models.BigIntegerField(_("start"), default=0)
    end_at = models.BigIntegerField(_("end"), default=0)
    seq = models.BigIntegerField(_("sequence"), default=0)
    score = models.FloatField(_("score"), default=0)
    match_type = models.IntegerField(_("match type"), default=0)
    sub_chunk_id = models.JSONField(_("sub-chunk ids"), null=True, blank=True)
    metadata = EncryptedJSON(_("metadata"), default=dict, blank=True)
    chunk_type = models.TextField(_("chunk type"), blank=True, default="")
    parent_chunk_id = models.TextField(_("parent chunk id"), blank=True, default="")
    image_info = EncryptedText(_("image info"), blank=True, default="")
    knowledge_filename = EncryptedText(_("file name"), blank=True, default="")
    knowledge_source = EncryptedText(_("source"), blank=True, default="")

    class Meta:
        verbose_name = _("reference")
        verbose_name_plural = _("references")
        ordering = ["message", "position"]
        indexes = [
            # The references of a page of messages, and the deletion of a message.
            models.Index(fields=["message"], name="reference_message"),
        ]

    def __str__(self) -> str:
        return self.knowledge_title or self.reference_id or str(self.id)


class MessageKey(models.Model):
    """The identity of a message: its id for an external id of a session, so that repeated deliveries reach one message.

    The key outlives a purged message for 30 days, so that a running agent cannot revive it.
    """

    key = models.UUIDField(primary_key=True)
    """Digest of (session, external id), see `message_key`."""
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    """That of the message; 0 if it was purged by a version whose keys did not carry it."""
    message_id = models.UUIDField()
    purged_at = models.DateTimeField(null=True)
    """The time when the message was purged individually; for dropped periods see PurgedPeriod."""

    class Meta:
        indexes = [
            # Retention deletes keys by the time range of their messages.
            models.Index(fields=["message_id"], name="message_key_message"),
            # Keys of purged messages are deleted after 30 days.
            models.Index(fields=["purged_at"], condition=Q(purged_at__isnull=False), name="message_key_purged"),
        ]

    def __str__(self) -> str:
        return str(self.message_id)


class PurgedPeriod(models.Model):
    """A period whose partitions were dropped. Its keys are deleted 30 days later, so that the drop takes constant time."""

    begin = models.DateField(primary_key=True, db_column="month")
    end = models.DateField(null=True)
    """The day after the last one; null of a month that a version without shorter periods has dropped."""
    purged_at = models.DateTimeField()

    class Meta:
        db_table = "messages_app_purgedmonth"

    def __str__(self) -> str:
        return str(self.period)

    @property
    def period(self) -> Period:
        return Period(self.begin, self.end) if self.end else Period.month(self.begin.year, self.begin.month)


class SessionTombstone(models.Model):
    """The mark of a purged session, without its content; deleted after 30 days."""

    key = models.UUIDField(primary_key=True)
    """Digest of (project, external id) or of (session id), see `session_key`."""
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    """That of the session; 0 if it was purged by a version whose tombstones did not carry it."""
    purged_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return str(self.key)


class Change(models.Model):
    """A row of the log of changes: a message that a transaction wrote or removed, or rows below it. See messages_app.change_log.

    Append-only, so that writers never wait for each other; removed when all readers have read it.
    """

    class Kind(models.TextChoices):
        CONTENT = "content"
        """What the message says, or a value of its steps, calls or results."""
        FIGURES = "figures"
        """Only costs, or whether it is there: it was deleted, restored or removed."""
        INDEX = "index"
        """Nothing, but its texts are to be indexed again."""
        VECTOR = "vector"
        """Nothing, but the vector of the run is to be made again."""
        PATTERN = "pattern"
        """Nothing, but the patterns of its errors are to be stored again."""
        SEAL = "seal"
        """Only what a seal covers and nobody reads here: the form in which it is stored."""

    position = models.BigAutoField(primary_key=True)
    transaction = models.BigIntegerField(
        db_default=Cast(Cast(Func(function="pg_current_xact_id"), models.TextField()), models.BigIntegerField())
    )
    """The id of the transaction that wrote the row, without its end at 32 bits. PostgreSQL has no cast of xid8 to a number."""
    at = models.DateTimeField(db_default=Now())
    project = models.ForeignKey(Project, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    message_id = models.UUIDField()
    kind = models.CharField(max_length=10, choices=Kind)
    token = models.BinaryField(db_default=b"")
    """That the application wrote a message which has a seal or gets one; empty for others. See seal_tokens.py."""

    class Meta:
        indexes = [
            # The order of reading.
            models.Index(fields=["transaction", "position"], name="change_order"),
            # Whether a message waits for a reader.
            models.Index(fields=["message_id"], name="change_message"),
        ]

    def __str__(self) -> str:
        return f"{self.position} {self.kind} {self.message_id}"


class ChangeReader(models.Model):
    """How far a reader of the log of changes is."""

    name = models.CharField(max_length=40, primary_key=True)
    transaction = models.BigIntegerField()
    position = models.BigIntegerField()
    """Of the last row that it has read."""
    system = models.BigIntegerField()
    """The identifier of PostgreSQL's cluster, in which the numbers of transactions hold."""
    state = models.JSONField(default=dict)
    """What else it has to know. Of the search `waiting`: messages that it has read and not indexed yet, with the times of their
    changes. Of the seals `ahead`: positions of rows that it has read before it was their turn; and `again` of change_log.AGAIN."""

    def __str__(self) -> str:
        return self.name


class SavedView(models.Model):
    """Filters and a search of a list of the admin that somebody saved under a name."""

    owner = PersonKey(
        settings.AUTH_USER_MODEL, models.CASCADE, verbose_name=_("owner"), db_index=False, related_name="+"
    )
    name = models.CharField(_("name"), max_length=80)
    list_name = models.CharField(max_length=100)
    """The list: `KeysetAdmin.list_name`."""
    query = models.CharField(max_length=2_000)
    """The query string of the list, without its place; see messages_app.admin.saved_views."""
    shared = models.BooleanField(
        _("shared"), default=False, help_text=_("Everyone who has a project in common with you sees the view.")
    )
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        constraints = [
            # Also serves the views of a list.
            models.UniqueConstraint(fields=["list_name", "owner", "name"], name="saved_view_name"),
        ]

    def __str__(self) -> str:
        return one_line(self.name, 80)


class ListColumns(models.Model):
    """The columns that somebody chose for a list of the admin; see messages_app.admin.columns."""

    owner = PersonKey(settings.AUTH_USER_MODEL, models.CASCADE, db_index=False, related_name="+")
    list_name = models.CharField(max_length=100)
    """The list: `KeysetAdmin.list_name`."""
    names = ArrayField(models.CharField(max_length=100))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "list_name"], name="list_columns")]

    def __str__(self) -> str:
        return self.list_name


def message_key(session: UUID, external_id: str) -> UUID:
    return ids.key("message", session, external_id)


def session_key(project: int, name: str) -> UUID:
    """Return the key of a session's tombstone; `name` is its external id, or its id as text."""
    return ids.key("session", project, name)
