"""Projects and their API keys."""

from __future__ import annotations

import datetime as dt
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, ClassVar, TypedDict

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext_lazy as _
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from access_app.conf import conf
from access_app.people import PersonKey

from .retention import MOST_DAYS, MOST_EXCEPTIONS, check_kept_score

PREFIX_LENGTH = 8
"""Characters of a key that are stored and shown, so that people recognise it."""


class Scope(models.TextChoices):
    """Permissions of an API key; none of them includes another."""

    READ = "read", _("read")
    WRITE = "write", _("write")
    DELETE = "delete", _("delete and restore")


class Role(models.TextChoices):
    """The role of a member in a project; each includes those before it."""

    VIEWER = "viewer", _("viewer: reads masked values")
    ANALYST = "analyst", _("analyst: reads all values")
    EDITOR = "editor", _("editor: also writes, deletes, restores and scores")
    OWNER = "owner", _("owner: also purges, and manages members, API keys and settings")

    @property
    def and_above(self) -> tuple[Role, ...]:
        """The roles that include this one, itself first."""
        roles = tuple(Role)
        return roles[roles.index(self) :]


class AuditAction(models.TextChoices):
    """Everything that the audit log records."""

    LIST = "list", _("list")
    READ = "read", _("read")
    SEARCH = "search", _("search")
    EXPORT = "export", _("export")
    CREATE = "create", _("create")
    CHANGE = "change", _("change")
    DELETE = "delete", _("delete")
    RESTORE = "restore", _("restore")
    PURGE = "purge", _("purge")
    IMPORT = "import", _("import")
    LOGIN = "login", _("login")
    LOGOUT = "logout", _("logout")
    KEY_USE = "key_use", _("use of a key")
    KEY_CREATE = "key_create", _("creation of a key")
    KEY_ROTATE = "key_rotate", _("rotation of a key")
    KEY_REVOKE = "key_revoke", _("revocation of a key")
    ROLE_GRANT = "role_grant", _("grant of a role")
    ROLE_REVOKE = "role_revoke", _("revocation of a role")
    AUDIT_PURGE = "audit_purge", _("purge of the audit log")
    SEAL = "seal", _("sealing")


class ActorKind(models.TextChoices):
    USER = "user", _("user")
    KEY = "key", _("API key")
    COMMAND = "command", _("command")
    SYSTEM = "system", _("system")


class AuditResult(models.TextChoices):
    ALLOWED = "allowed", _("allowed")
    REFUSED = "refused", _("refused")
    FAILED = "failed", _("failed")


class Encryption(models.TextChoices):
    """The state of encryption at rest of a project's traces; see access_app.encryption."""

    OFF = "off", _("off")
    ON = "on", _("on")
    ENDING = "ending", _("being turned off")


class Sampling(TypedDict):
    """Sampling rules of a project in the form that recorders read (tracesite_sdk.recorder.delivery.sinks.ServerSampling)."""

    rate: float | None
    tools: dict[str, float]
    keep_errors: bool
    keep_slower_than_ms: int | None


def check_shares(value: object) -> None:
    """Raise ValidationError unless the value maps tool names to shares from 0 to 1."""
    if not isinstance(value, dict) or not all(map(_is_name, value)) or not all(map(_is_share, value.values())):
        raise ValidationError(_('Expected an object of tool names and rates from 0 to 1: {"search": 0.1}.'))


def check_network(value: str) -> None:
    """Raise ValidationError unless the value is an IP address or a network such as 10.0.0.0/8."""
    try:
        ip_network(value)
    except ValueError:
        raise ValidationError(
            _("“%(value)s” is not an IP address or network. Write 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32."),
            params={"value": value},
        ) from None


class RetentionWay(models.TextChoices):
    """The way in which data older than the days of its project is removed."""

    EXACT = "exact", _("exact: each message on its day")
    WHOLE = "whole", _("whole periods: up to a period later, at once")


class KeptStatus(models.TextChoices):
    """The statuses of sessions, which are those of messages_app.models.Session."""

    PLANNING = "planning", _("planning")
    RUNNING = "running", _("running")
    PAUSED = "paused", _("paused")
    COMPLETED = "completed", _("completed")
    ERROR = "error", _("error")
    ABORTED = "aborted", _("aborted")


class Project(models.Model):
    """Isolation boundary: every row of the other apps belongs to exactly one project."""

    slug = models.SlugField(
        _("slug"),
        max_length=64,
        unique=True,
        help_text=_("Short name of the project in commands and URLs. Letters, digits, hyphens and underscores."),
    )
    name = models.CharField(_("name"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    sampling_rate = models.FloatField(
        _("session sampling rate"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text=_("Share of sessions to record, from 0 to 1. Empty: each recorder uses its own setting."),
    )
    sampling_tools = models.JSONField(
        _("tool sampling rates"),
        default=dict,
        db_default={},
        blank=True,
        validators=[check_shares],
        help_text=_('Share of calls to record, by tool name: {"search": 0.1}. All calls of other tools are recorded.'),
    )
    sampling_keep_errors = models.BooleanField(
        _("keep failures"),
        default=True,
        db_default=True,
        help_text=_("Record failures, and everything that contains them, whatever the rates."),
    )
    sampling_keep_slower_than_ms = models.PositiveIntegerField(
        _("keep slower than (ms)"),
        null=True,
        blank=True,
        help_text=_(
            "Record everything slower than this, whatever the rates. Empty: each recorder uses its own setting."
        ),
    )
    retention_days = models.PositiveIntegerField(
        _("days of live data"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_DAYS)],
        help_text=_(
            "Messages that are older are removed for good, in the trash or not. Empty: none is removed by age."
        ),
    )
    retention_way = models.CharField(
        _("way of removal"),
        max_length=8,
        choices=RetentionWay.choices,
        default=RetentionWay.EXACT,
        db_default=RetentionWay.EXACT,
        help_text=_(
            "Exact: what is too old today is removed today, message by message. Whole periods: once all of a "
            "partition, a day, week or month, is too old, which takes a moment and returns the space on the disk."
        ),
    )
    trash_days = models.PositiveIntegerField(
        _("days in the trash"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_DAYS)],
        help_text=_("What was deleted longer ago is removed for good. Empty: TRACESITE_TRASH_DAYS decides."),
    )
    keep_tags = ArrayField(
        models.CharField(max_length=200),
        verbose_name=_("keep sessions with a tag"),
        size=MOST_EXCEPTIONS,
        default=list,
        db_default=[],
        blank=True,
        help_text=_("Sessions with one of these tags are kept whatever their age. Separated by commas."),
    )
    keep_statuses = ArrayField(
        models.CharField(max_length=16, choices=KeptStatus.choices),
        verbose_name=_("keep sessions with a status"),
        default=list,
        db_default=[],
        blank=True,
    )
    keep_scores = ArrayField(
        models.CharField(max_length=200, validators=[check_kept_score]),
        verbose_name=_("keep sessions with a score"),
        size=MOST_EXCEPTIONS,
        default=list,
        db_default=[],
        blank=True,
        help_text=_(
            "Sessions with such a score, also of one of their messages or calls, are kept: helpful, rating>=4, quality<=0.3. "
            "Separated by commas; yes counts as 1, no as 0."
        ),
    )
    keep_pinned = models.BooleanField(_("keep pinned sessions"), default=False, db_default=False)
    encryption = models.CharField(
        _("encryption at rest"),
        max_length=8,
        choices=Encryption.choices,
        default=Encryption.OFF,
        db_default=Encryption.OFF,
        editable=False,
    )
    """ON: what is stored from now on is encrypted. ENDING: it is not, and what was stored before is being decrypted."""

    class Meta:
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        ordering: ClassVar = ["slug"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(sampling_rate__gte=0, sampling_rate__lte=1), name="sampling_rate_is_a_share"
            ),
            # 0 would mean that everything goes.
            models.CheckConstraint(condition=Q(retention_days__gte=1), name="retention_of_a_day"),
            models.CheckConstraint(condition=Q(trash_days__gte=1), name="trash_of_a_day"),
        ]

    def __str__(self) -> str:
        return self.slug

    def days_in_trash(self) -> int | None:
        """Return the days after which a purge removes what is in the trash; None: never."""
        return self.trash_days if self.trash_days is not None else conf.TRASH_DAYS or None

    def sampling(self) -> Sampling | None:
        """Return the sampling rules for recorders; None if the project has none."""
        asked = Sampling(
            rate=self.sampling_rate,
            tools=self.sampling_tools,
            keep_errors=self.sampling_keep_errors,
            keep_slower_than_ms=self.sampling_keep_slower_than_ms,
        )
        nothing = Sampling(rate=None, tools={}, keep_errors=True, keep_slower_than_ms=None)
        return None if asked == nothing else asked


class ProjectDatabase(models.Model):
    """A database that has the traces of some projects: `access_app/places.py`. Its number keeps its ids apart from those of others."""

    alias = models.CharField(_("alias"), max_length=64, unique=True)

    def __str__(self) -> str:
        return self.alias


class ProjectPlace(models.Model):
    """The database of a project's traces, if it is not the primary. A project without such a row has its traces in the primary."""

    project = models.OneToOneField(Project, models.PROTECT, primary_key=True, related_name="place")
    database = models.ForeignKey(ProjectDatabase, models.PROTECT, related_name="places")

    def __str__(self) -> str:
        return f"{self.project_id}: {self.database_id}"


class Membership(models.Model):
    """Role of a user, or of all users of a group, in a project. Of several, the highest counts."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="memberships", verbose_name=_("project")
    )
    user = PersonKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        verbose_name=_("user"),
    )
    group = PersonKey(
        "auth.Group", null=True, blank=True, on_delete=models.CASCADE, related_name="+", verbose_name=_("group")
    )
    role = models.CharField(_("role"), max_length=16, choices=Role.choices)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(user=None, group__isnull=False) | Q(user__isnull=False, group=None),
                name="membership_of_a_user_or_a_group",
                violation_error_message=_("Choose either a user or a group."),
            ),
            models.UniqueConstraint(
                fields=["project", "user"],
                name="one_membership_for_each_user",
                violation_error_message=_("This user has a role in the project already."),
            ),
            models.UniqueConstraint(
                fields=["project", "group"],
                name="one_membership_for_each_group",
                violation_error_message=_("This group has a role in the project already."),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user or self.group}: {self.role}"


class ProjectKey(models.Model):
    """A data key of a project: see access_app.encryption. The newest one encrypts; earlier ones decrypt what they have encrypted."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="data_keys", verbose_name=_("project"))
    version = models.PositiveIntegerField()
    """From 1 in each project."""
    key_id = models.CharField(max_length=16, unique=True)
    """Random; every encrypted value names it. Hexadecimal."""
    wrapped = models.BinaryField(null=True)
    """The key, encrypted with the master key; null after it was destroyed."""
    master_id = models.CharField(max_length=8)
    """The id of that master key."""
    created_at = models.DateTimeField(default=timezone.now)
    destroyed_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar = ["project", "version"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "version"], name="data_key_of_a_version"),
        ]

    def __str__(self) -> str:
        return f"{self.project_id}: {self.version}"


class MaskingKind(models.TextChoices):
    """The means by which a masking rule recognises values."""

    PRESET = "preset", _("preset: email, phone, card, iban or chinese_id")
    KEY = "key", _("key: the name of a value, in all spellings")
    PATTERN = "pattern", _("pattern: a regular expression")
    PATH = "path", _("path: a place in JSON, such as args.customer.name")
    FUNCTION = "function", _("function: one that the settings allow")


class MaskingMoment(models.TextChoices):
    """The moment at which a masking rule is applied."""

    STORE = "store", _("before it is stored")
    READ = "read", _("when a viewer reads")


class MaskingRule(models.Model):
    """Values that are removed from what a project receives, besides the secrets that are always removed, or from what its
    viewers read."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="masking_rules", verbose_name=_("project")
    )
    name = models.SlugField(_("name"), max_length=64, help_text=_("Name of the rule in the receipts of traces."))
    kind = models.CharField(_("kind"), max_length=16, choices=MaskingKind.choices)
    value = models.CharField(_("value"), max_length=500)
    when = models.CharField(
        _("when"),
        max_length=8,
        choices=MaskingMoment.choices,
        default=MaskingMoment.STORE,
        db_default=MaskingMoment.STORE,
    )
    enabled = models.BooleanField(_("enabled"), default=True, db_default=True)

    class Meta:
        verbose_name = _("masking rule")
        verbose_name_plural = _("masking rules")
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "name"],
                name="masking_rule_of_a_name",
                violation_error_message=_("The project has a masking rule with this name already."),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.kind} {self.value}"


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def active(self, now: dt.datetime | None = None) -> ApiKeyQuerySet:
        """Return keys that are neither revoked nor expired at `now` (default: the present)."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=now or timezone.now()), revoked_at=None)


class ApiKey(models.Model):
    """Credential of one project. The token is not stored: `keys.create_key` returns it once."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="api_keys", verbose_name=_("project"))
    name = models.CharField(_("name"), max_length=200, help_text=_("What uses the key, such as a program or a person."))
    # Enough of the token to recognise a key in a list, too little to guess the rest.
    prefix = models.CharField(_("prefix"), max_length=PREFIX_LENGTH, editable=False)
    # SHA-256 without salt or stretching suffices, because a token of 256 random bits cannot be guessed.
    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices), verbose_name=_("scopes"))
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    created_by = PersonKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("created by"),
    )
    # Exact to a minute: see keys.find_key.
    last_used_at = models.DateTimeField(_("last used at"), null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True, editable=False)
    allowed_networks = ArrayField(
        models.CharField(max_length=43, validators=[check_network]),
        verbose_name=_("allowed networks"),
        default=list,
        db_default=[],
        blank=True,
        help_text=_(
            "IP addresses and networks that may use the key, separated by commas: 192.0.2.7, 10.0.0.0/8. Empty: all."
        ),
    )
    requests_per_minute = models.PositiveIntegerField(
        _("requests per minute"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000)],
        help_text=_("Requests beyond this are answered with 429. Empty: no limit."),
    )
    reads_masked = models.BooleanField(
        _("reads masked values"),
        default=False,
        db_default=False,
        help_text=_("The key reads what a viewer reads, by the masking rules of the project. It can only read."),
    )

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                # What is written back after it was read would be masked for good.
                condition=Q(reads_masked=False) | Q(scopes=[Scope.READ.value]),
                name="masked_key_only_reads",
                violation_error_message=_("A key that reads masked values can have no other scope than read."),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def status(self, now: dt.datetime | None = None) -> str:
        """Return `active`, `expired` or `revoked`, as of `now`."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= (now or timezone.now()):
            return "expired"
        return "active"

    def allows_address(self, address: str) -> bool:
        """Return whether a client at this IP address may use the key. An IPv4 address in IPv6 counts as IPv4."""
        if not self.allowed_networks:
            return True
        try:
            ip = ip_address(address)
        except ValueError:  # a socket without a network
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        networks: list[IPv4Network | IPv6Network] = [ip_network(network) for network in self.allowed_networks]
        return any(ip in network for network in networks)


class KeyThrottle(models.Model):
    """The used part of the rate limit of a key: see throttling.KeyRateThrottle."""

    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, primary_key=True, related_name="throttle")
    full_at = models.DateTimeField()
    """When the key may send as many requests at once as in a minute again, if it sends none until then."""

    def __str__(self) -> str:
        return f"{self.key_id}: {self.full_at}"


SETTINGS = ("apikey", "group", "masking_rule", "modelprice", "project", "user")
"""The types of objects of audit entries that are settings."""


class AuditEntry(models.Model):
    """One line of the audit log. It is written once; `access_app.audit.chain` adds its place in the chain of its project.

    Without content of traces. The log outlives what it names, so nothing in it is a constraint on other tables.
    """

    project = models.ForeignKey(
        Project,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
        verbose_name=_("project"),
    )
    time = models.DateTimeField(_("time"))
    actor_kind = models.CharField(_("kind of actor"), max_length=10, choices=ActorKind.choices)
    actor_name = models.CharField(_("actor"), max_length=255)
    actor_id = models.CharField(_("id of the actor"), max_length=64, blank=True)
    action = models.CharField(_("action"), max_length=16, choices=AuditAction.choices)
    object_type = models.CharField(_("type of object"), max_length=64, blank=True)
    object_id = models.CharField(_("id of the object"), max_length=255, blank=True)
    object_name = models.CharField(_("object"), max_length=255, blank=True)
    address = models.CharField(_("address"), max_length=64, blank=True)
    request_id = models.CharField(_("request id"), max_length=128, blank=True)
    result = models.CharField(_("result"), max_length=8, choices=AuditResult.choices)
    detail = models.JSONField(_("detail"), default=dict)
    sequence = models.BigIntegerField(_("number in the chain"), null=True, editable=False)
    """From 1 in the chain of the project, or of the entries without one; None until it is chained."""
    previous_hash = models.CharField(
        _("previous hash"), max_length=64, blank=True, default="", db_default="", editable=False
    )
    hash = models.CharField(_("hash"), max_length=64, blank=True, default="", db_default="", editable=False)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "sequence"], name="audit_sequence_of_project"),
            models.UniqueConstraint(
                fields=["sequence"], condition=Q(project=None), name="audit_sequence_without_project"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["project", "-id"], name="audit_of_project"),
            # Who read this, and what did they do?
            models.Index(fields=["object_id", "-id"], name="audit_of_object", condition=~Q(object_id="")),
            models.Index(fields=["actor_name", "-id"], name="audit_of_actor"),
            # Who changed which setting? Few entries among those of requests.
            models.Index(fields=["-id"], name="audit_of_settings", condition=Q(object_type__in=SETTINGS)),
            # Times come in order, so that a few pages say where a range of them is.
            BrinIndex(fields=["time"], name="audit_of_time"),
            # The queue of the background job that chains.
            models.Index(fields=["id"], condition=Q(sequence=None), name="audit_unchained"),
        ]

    def __str__(self) -> str:
        return (
            f"{self.time:%Y-%m-%d %H:%M:%S} {self.actor_name} {self.action} {self.object_type} {self.object_id}".strip()
        )


def _is_name(name: Any) -> bool:
    # PostgreSQL text holds neither NUL nor lone surrogates.
    return name != "" and "\x00" not in name and name == name.encode("utf-8", "ignore").decode()


def _is_share(share: Any) -> bool:
    return isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1


class AuthenticatorApp(TOTPDevice):
    """App of a user that shows one-time passwords."""

    class Meta:
        proxy = True

    @property
    def bin_key(self) -> bytes:
        """The key that the app has: made of the stored value and the secret key of the site, so that neither suffices."""
        return salted_hmac("access_app.AuthenticatorApp", self.key, algorithm="sha256").digest()[:20]


class RecoveryCodes(StaticDevice):
    """Recovery codes of a user, as keyed digests."""

    class Meta:
        proxy = True
