"""Projects, API keys, roles, masking rules, data keys and the audit log, with the triggers of two of them."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import access_app.models
import access_app.people
import access_app.retention

# PostgreSQL notifies processes that remember projects, keys and roles (access_app/db/statements.py) when one changes: not when the last
# use of a key is noted, which happens every minute.
NOTIFY_OF_CHANGES = """
    CREATE FUNCTION access_app_changed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NOTIFY access_app_changed;
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER access_app_changed
        AFTER UPDATE OF project_id, name, digest, scopes, expires_at, revoked_at OR DELETE OR TRUNCATE
        ON access_app_apikey EXECUTE FUNCTION access_app_changed();
    CREATE TRIGGER access_app_changed
        AFTER UPDATE OR DELETE OR TRUNCATE ON access_app_project EXECUTE FUNCTION access_app_changed();
    CREATE TRIGGER access_app_changed
        AFTER UPDATE OR DELETE OR TRUNCATE ON access_app_membership EXECUTE FUNCTION access_app_changed();
    """
NOTIFY_OF_NOTHING = """
    DROP TRIGGER access_app_changed ON access_app_membership;
    DROP TRIGGER access_app_changed ON access_app_project;
    DROP TRIGGER access_app_changed ON access_app_apikey;
    DROP FUNCTION access_app_changed();
    """
# The database refuses changes of the audit log: only the place in the chain is added, once, and only retention deletes.
APPEND_ONLY = """
    CREATE FUNCTION access_app_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF current_setting('tracesite.audit_retention', true) = 'on' AND OLD.sequence IS NOT NULL THEN
                RETURN OLD;
            END IF;
        ELSIF OLD.sequence IS NULL
            AND to_jsonb(OLD) - '{sequence,previous_hash,hash}'::text[] = to_jsonb(NEW) - '{sequence,previous_hash,hash}'::text[]
        THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'Entries of the audit log are neither changed nor deleted.';
    END
    $$;
    CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON access_app_auditentry
        FOR EACH ROW EXECUTE FUNCTION access_app_audit_append_only();
    """
NOT_APPEND_ONLY = """
    DROP TRIGGER append_only ON access_app_auditentry;
    DROP FUNCTION access_app_audit_append_only();
    """


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("otp_static", "0003_add_timestamps"),
        ("otp_totp", "0003_add_timestamps"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "slug",
                    models.SlugField(
                        help_text="Short name of the project in commands and URLs. Letters, digits, hyphens and underscores.",
                        max_length=64,
                        unique=True,
                        verbose_name="slug",
                    ),
                ),
                ("name", models.CharField(blank=True, max_length=200, verbose_name="name")),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created at"),
                ),
                (
                    "sampling_keep_errors",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="Record failures, and everything that contains them, whatever the rates.",
                        verbose_name="keep failures",
                    ),
                ),
                (
                    "sampling_keep_slower_than_ms",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Record everything slower than this, whatever the rates. Empty: each recorder uses its own setting.",
                        null=True,
                        verbose_name="keep slower than (ms)",
                    ),
                ),
                (
                    "sampling_rate",
                    models.FloatField(
                        blank=True,
                        help_text="Share of sessions to record, from 0 to 1. Empty: each recorder uses its own setting.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(1),
                        ],
                        verbose_name="session sampling rate",
                    ),
                ),
                (
                    "sampling_tools",
                    models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        help_text='Share of calls to record, by tool name: {"search": 0.1}. All calls of other tools are recorded.',
                        validators=[access_app.models.check_shares],
                        verbose_name="tool sampling rates",
                    ),
                ),
                (
                    "keep_pinned",
                    models.BooleanField(db_default=False, default=False, verbose_name="keep pinned sessions"),
                ),
                (
                    "keep_scores",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200, validators=[access_app.retention.check_kept_score]),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Sessions with such a score, also of one of their messages or calls, are kept: helpful, rating>=4, quality<=0.3. Separated by commas; yes counts as 1, no as 0.",
                        size=50,
                        verbose_name="keep sessions with a score",
                    ),
                ),
                (
                    "keep_statuses",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("planning", "planning"),
                                ("running", "running"),
                                ("paused", "paused"),
                                ("completed", "completed"),
                                ("error", "error"),
                                ("aborted", "aborted"),
                            ],
                            max_length=16,
                        ),
                        blank=True,
                        db_default=[],
                        default=list,
                        size=None,
                        verbose_name="keep sessions with a status",
                    ),
                ),
                (
                    "keep_tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Sessions with one of these tags are kept whatever their age. Separated by commas.",
                        size=50,
                        verbose_name="keep sessions with a tag",
                    ),
                ),
                (
                    "retention_days",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Messages that are older are removed for good, in the trash or not. Empty: none is removed by age.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(36500),
                        ],
                        verbose_name="days of live data",
                    ),
                ),
                (
                    "retention_way",
                    models.CharField(
                        choices=[
                            ("exact", "exact: each message on its day"),
                            ("whole", "whole periods: up to a period later, at once"),
                        ],
                        db_default="exact",
                        default="exact",
                        help_text="Exact: what is too old today is removed today, message by message. Whole periods: once all of a partition, a day, week or month, is too old, which takes a moment and returns the space on the disk.",
                        max_length=8,
                        verbose_name="way of removal",
                    ),
                ),
                (
                    "trash_days",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="What was deleted longer ago is removed for good. Empty: TRACESITE_TRASH_DAYS decides.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(36500),
                        ],
                        verbose_name="days in the trash",
                    ),
                ),
                (
                    "encryption",
                    models.CharField(
                        choices=[("off", "off"), ("on", "on"), ("ending", "being turned off")],
                        db_default="off",
                        default="off",
                        editable=False,
                        max_length=8,
                        verbose_name="encryption at rest",
                    ),
                ),
            ],
            options={
                "verbose_name": "project",
                "verbose_name_plural": "projects",
                "ordering": ["slug"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("sampling_rate__gte", 0), ("sampling_rate__lte", 1)),
                        name="sampling_rate_is_a_share",
                    ),
                    models.CheckConstraint(condition=models.Q(("retention_days__gte", 1)), name="retention_of_a_day"),
                    models.CheckConstraint(condition=models.Q(("trash_days__gte", 1)), name="trash_of_a_day"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        help_text="What uses the key, such as a program or a person.",
                        max_length=200,
                        verbose_name="name",
                    ),
                ),
                ("prefix", models.CharField(editable=False, max_length=8, verbose_name="prefix")),
                ("digest", models.CharField(editable=False, max_length=64, unique=True, verbose_name="digest")),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[("read", "read"), ("write", "write"), ("delete", "delete and restore")],
                            max_length=16,
                        ),
                        size=None,
                        verbose_name="scopes",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created at"),
                ),
                (
                    "last_used_at",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last used at"),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires at")),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="revoked at")),
                (
                    "created_by",
                    access_app.people.PersonKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="created by",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_keys",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "allowed_networks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=43, validators=[access_app.models.check_network]),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="IP addresses and networks that may use the key, separated by commas: 192.0.2.7, 10.0.0.0/8. Empty: all.",
                        size=None,
                        verbose_name="allowed networks",
                    ),
                ),
                (
                    "requests_per_minute",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Requests beyond this are answered with 429. Empty: no limit.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                        verbose_name="requests per minute",
                    ),
                ),
                (
                    "reads_masked",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="The key reads what a viewer reads, by the masking rules of the project. It can only read.",
                        verbose_name="reads masked values",
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "verbose_name_plural": "API keys",
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("reads_masked", False), ("scopes", ["read"]), _connector="OR"),
                        name="masked_key_only_reads",
                        violation_error_message="A key that reads masked values can have no other scope than read.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("viewer", "viewer: reads masked values"),
                            ("analyst", "analyst: reads all values"),
                            ("editor", "editor: also writes, deletes, restores and scores"),
                            ("owner", "owner: also purges, and manages members, API keys and settings"),
                        ],
                        max_length=16,
                        verbose_name="role",
                    ),
                ),
                (
                    "group",
                    access_app.people.PersonKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="auth.group",
                        verbose_name="group",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "user",
                    access_app.people.PersonKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "membership",
                "verbose_name_plural": "memberships",
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("group__isnull", False), ("user", None)),
                            models.Q(("group", None), ("user__isnull", False)),
                            _connector="OR",
                        ),
                        name="membership_of_a_user_or_a_group",
                        violation_error_message="Choose either a user or a group.",
                    ),
                    models.UniqueConstraint(
                        fields=("project", "user"),
                        name="one_membership_for_each_user",
                        violation_error_message="This user has a role in the project already.",
                    ),
                    models.UniqueConstraint(
                        fields=("project", "group"),
                        name="one_membership_for_each_group",
                        violation_error_message="This group has a role in the project already.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeyThrottle",
            fields=[
                (
                    "key",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="throttle",
                        serialize=False,
                        to="access_app.apikey",
                    ),
                ),
                ("full_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("time", models.DateTimeField(verbose_name="time")),
                (
                    "actor_kind",
                    models.CharField(
                        choices=[("user", "user"), ("key", "API key"), ("command", "command"), ("system", "system")],
                        max_length=10,
                        verbose_name="kind of actor",
                    ),
                ),
                ("actor_name", models.CharField(max_length=255, verbose_name="actor")),
                ("actor_id", models.CharField(blank=True, max_length=64, verbose_name="id of the actor")),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("list", "list"),
                            ("read", "read"),
                            ("search", "search"),
                            ("export", "export"),
                            ("create", "create"),
                            ("change", "change"),
                            ("delete", "delete"),
                            ("restore", "restore"),
                            ("purge", "purge"),
                            ("import", "import"),
                            ("login", "login"),
                            ("logout", "logout"),
                            ("key_use", "use of a key"),
                            ("key_create", "creation of a key"),
                            ("key_rotate", "rotation of a key"),
                            ("key_revoke", "revocation of a key"),
                            ("role_grant", "grant of a role"),
                            ("role_revoke", "revocation of a role"),
                            ("audit_purge", "purge of the audit log"),
                            ("seal", "sealing"),
                        ],
                        max_length=16,
                        verbose_name="action",
                    ),
                ),
                ("object_type", models.CharField(blank=True, max_length=64, verbose_name="type of object")),
                ("object_id", models.CharField(blank=True, max_length=255, verbose_name="id of the object")),
                ("object_name", models.CharField(blank=True, max_length=255, verbose_name="object")),
                ("address", models.CharField(blank=True, max_length=64, verbose_name="address")),
                ("request_id", models.CharField(blank=True, max_length=128, verbose_name="request id")),
                (
                    "result",
                    models.CharField(
                        choices=[("allowed", "allowed"), ("refused", "refused"), ("failed", "failed")],
                        max_length=8,
                        verbose_name="result",
                    ),
                ),
                ("detail", models.JSONField(default=dict, verbose_name="detail")),
                ("sequence", models.BigIntegerField(editable=False, null=True, verbose_name="number in the chain")),
                (
                    "previous_hash",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        max_length=64,
                        verbose_name="previous hash",
                    ),
                ),
                (
                    "hash",
                    models.CharField(
                        blank=True, db_default="", default="", editable=False, max_length=64, verbose_name="hash"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit log",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["project", "-id"], name="audit_of_project"),
                    models.Index(condition=models.Q(("sequence", None)), fields=["id"], name="audit_unchained"),
                    models.Index(
                        condition=models.Q(("object_id", ""), _negated=True),
                        fields=["object_id", "-id"],
                        name="audit_of_object",
                    ),
                    models.Index(fields=["actor_name", "-id"], name="audit_of_actor"),
                    django.contrib.postgres.indexes.BrinIndex(fields=["time"], name="audit_of_time"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "sequence"), name="audit_sequence_of_project"),
                    models.UniqueConstraint(
                        condition=models.Q(("project", None)),
                        fields=("sequence",),
                        name="audit_sequence_without_project",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuthenticatorApp",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("otp_totp.totpdevice",),
        ),
        migrations.CreateModel(
            name="RecoveryCodes",
            fields=[],
            options={
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("otp_static.staticdevice",),
        ),
        migrations.CreateModel(
            name="MaskingRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.SlugField(
                        help_text="Name of the rule in the receipts of traces.", max_length=64, verbose_name="name"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("preset", "preset: email, phone, card, iban or chinese_id"),
                            ("key", "key: the name of a value, in all spellings"),
                            ("pattern", "pattern: a regular expression"),
                            ("path", "path: a place in JSON, such as args.customer.name"),
                            ("function", "function: one that the settings allow"),
                        ],
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                ("value", models.CharField(max_length=500, verbose_name="value")),
                ("enabled", models.BooleanField(db_default=True, default=True, verbose_name="enabled")),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="masking_rules",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "when",
                    models.CharField(
                        choices=[("store", "before it is stored"), ("read", "when a viewer reads")],
                        db_default="store",
                        default="store",
                        max_length=8,
                        verbose_name="when",
                    ),
                ),
            ],
            options={
                "verbose_name": "masking rule",
                "verbose_name_plural": "masking rules",
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "name"),
                        name="masking_rule_of_a_name",
                        violation_error_message="The project has a masking rule with this name already.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ProjectKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.PositiveIntegerField()),
                ("key_id", models.CharField(max_length=16, unique=True)),
                ("wrapped", models.BinaryField(null=True)),
                ("master_id", models.CharField(max_length=8)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("destroyed_at", models.DateTimeField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="data_keys",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "ordering": ["project", "version"],
                "constraints": [models.UniqueConstraint(fields=("project", "version"), name="data_key_of_a_version")],
            },
        ),
        migrations.CreateModel(
            name="ProjectDatabase",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("alias", models.CharField(max_length=64, unique=True, verbose_name="alias")),
            ],
        ),
        migrations.CreateModel(
            name="ProjectPlace",
            fields=[
                (
                    "project",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="place",
                        serialize=False,
                        to="access_app.project",
                    ),
                ),
                (
                    "database",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="places",
                        to="access_app.projectdatabase",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(NOTIFY_OF_CHANGES, NOTIFY_OF_NOTHING),
        migrations.RunSQL(APPEND_ONLY, NOT_APPEND_ONLY),
    ]
