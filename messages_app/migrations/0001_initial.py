"""Sessions, messages and references, what is remembered of purged ones, and views of lists.

Message and Reference are partitioned by period (messages_app/sql/partitions.py).
"""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.fields.json
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import access_app.people
from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("access_app", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="PurgedPeriod",
            fields=[
                ("begin", models.DateField(db_column="month", primary_key=True, serialize=False)),
                ("purged_at", models.DateTimeField()),
                ("end", models.DateField(null=True)),
            ],
            options={
                "db_table": "messages_app_purgedmonth",
            },
        ),
        migrations.CreateModel(
            name="SessionTombstone",
            fields=[
                ("key", models.UUIDField(primary_key=True, serialize=False)),
                ("purged_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="MessageKey",
            fields=[
                ("key", models.UUIDField(primary_key=True, serialize=False)),
                ("message_id", models.UUIDField()),
                ("purged_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["message_id"], name="message_key_message"),
                    models.Index(
                        condition=models.Q(("purged_at__isnull", False)),
                        fields=["purged_at"],
                        name="message_key_purged",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("external_id", models.TextField(blank=True, default="", verbose_name="external id")),
                ("title", models.TextField(blank=True, default="", verbose_name="title")),
                ("description", models.TextField(blank=True, default="", verbose_name="description")),
                ("end_user", models.TextField(blank=True, default="", verbose_name="end user")),
                (
                    "said_status",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("planning", "planning"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("completed", "completed"),
                            ("error", "error"),
                            ("aborted", "aborted"),
                        ],
                        db_default="",
                        default="",
                        max_length=16,
                    ),
                ),
                ("current_phase", models.TextField(blank=True, default="", verbose_name="current phase")),
                ("workflow", models.JSONField(blank=True, null=True, verbose_name="workflow")),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None, verbose_name="tags"
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("redactions", models.JSONField(blank=True, default=list, verbose_name="redactions")),
                ("message_count", models.BigIntegerField(default=0, verbose_name="messages")),
                ("call_count", models.BigIntegerField(default=0, verbose_name="tool calls")),
                ("failure_count", models.BigIntegerField(default=0, verbose_name="failed calls")),
                ("input_tokens", models.BigIntegerField(default=0, verbose_name="input tokens")),
                ("output_tokens", models.BigIntegerField(default=0, verbose_name="output tokens")),
                ("duration_ms", models.BigIntegerField(default=0, verbose_name="duration (ms)")),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("updated_at", models.DateTimeField(verbose_name="updated at")),
                ("deleted_at", models.DateTimeField(blank=True, null=True, verbose_name="deleted at")),
                ("deleted_by", models.TextField(blank=True, default="", verbose_name="deleted by")),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                ("import_digests", models.BinaryField(blank=True, db_default=b"", default=b"")),
                ("last_event", models.BigIntegerField(db_default=0, default=0, verbose_name="events")),
                ("pinned_at", models.DateTimeField(blank=True, null=True, verbose_name="pinned at")),
                ("problem_count", models.BigIntegerField(db_default=0, default=0, verbose_name="problems")),
                ("open_count", models.BigIntegerField(db_default=0, default=0, verbose_name="open messages")),
                ("last_run_id", models.UUIDField(blank=True, null=True)),
                ("last_run_failed", models.BooleanField(db_default=False, default=False)),
                (
                    "active_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="last activity"
                    ),
                ),
                ("cost_sum", models.DecimalField(db_default=0, decimal_places=10, default=0, max_digits=20)),
                ("priced_count", models.BigIntegerField(db_default=0, default=0)),
                (
                    "unpriced_count",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="steps without a cost"),
                ),
                (
                    "cost",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Case(models.When(priced_count__gt=0, then="cost_sum")),
                        output_field=models.DecimalField(decimal_places=10, max_digits=20, null=True),
                        verbose_name="cost",
                    ),
                ),
                ("last_interruption", models.CharField(max_length=16, null=True)),
                ("is_abandoned", models.BooleanField(null=True)),
                (
                    "status",
                    models.GeneratedField(
                        choices=[
                            ("planning", "planning"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("completed", "completed"),
                            ("error", "error"),
                            ("aborted", "aborted"),
                        ],
                        db_persist=True,
                        expression=models.Case(
                            models.When(is_abandoned=True, then=models.Value("aborted")),
                            models.When(models.Q(("said_status", ""), _negated=True), then="said_status"),
                            models.When(open_count__gt=0, then=models.Value("running")),
                            models.When(last_run_id=None, message_count=0, then=models.Value("running")),
                            models.When(
                                models.Q(("last_interruption", ""), _negated=True),
                                last_interruption__isnull=False,
                                then=models.Value("aborted"),
                            ),
                            models.When(last_run_failed=True, then=models.Value("error")),
                            default=models.Value("completed"),
                        ),
                        output_field=models.CharField(max_length=16),
                        verbose_name="status",
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "ordering": ["-id"],
                "default_manager_name": "objects",
                "indexes": [
                    models.Index(fields=["project", "id"], name="session_page"),
                    models.Index(
                        condition=models.Q(("end_user", ""), _negated=True),
                        fields=["project", "end_user", "id"],
                        name="session_end_user",
                    ),
                    django.contrib.postgres.indexes.GinIndex(fields=["tags"], name="session_tags"),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False)),
                        fields=["project", "id"],
                        name="session_trash",
                    ),
                    models.Index(fields=["active_at", "id"], name="session_active"),
                    models.Index(
                        condition=models.Q(("problem_count__gt", 0)), fields=["project", "id"], name="session_problems"
                    ),
                    models.Index(
                        condition=models.Q(("cost__isnull", False)), fields=["project", "cost"], name="session_cost"
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False)),
                        fields=["deleted_at", "id"],
                        name="session_trash_order",
                    ),
                    models.Index(
                        models.F("project"),
                        django.db.models.fields.json.KeyTextTransform(
                            "session", django.db.models.fields.json.KeyTextTransform("forked_from", "metadata")
                        ),
                        models.F("id"),
                        condition=models.Q(("metadata__has_key", "forked_from")),
                        name="session_forks",
                    ),
                    models.Index(
                        condition=models.Q(("status", "completed"), _negated=True),
                        fields=["project", "status", "id"],
                        name="session_not_completed",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("external_id", ""), _negated=True),
                        fields=("project", "external_id"),
                        name="session_external_id",
                    )
                ],
            },
        ),
        CreatePartitionedModel(
            name="Message",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                (
                    "role",
                    models.CharField(
                        choices=[("user", "user"), ("assistant", "assistant"), ("system", "system")],
                        max_length=16,
                        verbose_name="role",
                    ),
                ),
                ("external_id", models.TextField(blank=True, default="", verbose_name="external id")),
                ("request_id", models.TextField(blank=True, default="", verbose_name="request id")),
                ("content", models.TextField(blank=True, default="", verbose_name="content")),
                ("content_parts", models.JSONField(blank=True, null=True, verbose_name="content parts")),
                ("is_completed", models.BooleanField(default=True, verbose_name="completed")),
                ("usage", models.JSONField(blank=True, null=True, verbose_name="usage")),
                ("error", models.TextField(blank=True, default="", verbose_name="error")),
                (
                    "health",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None, verbose_name="health"
                    ),
                ),
                ("redactions", models.JSONField(blank=True, default=list, verbose_name="redactions")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("step_count", models.IntegerField(default=0, verbose_name="steps")),
                ("call_count", models.IntegerField(default=0, verbose_name="tool calls")),
                ("failure_count", models.IntegerField(default=0, verbose_name="failed calls")),
                ("input_tokens", models.BigIntegerField(default=0, verbose_name="input tokens")),
                ("output_tokens", models.BigIntegerField(default=0, verbose_name="output tokens")),
                ("duration_ms", models.BigIntegerField(blank=True, null=True, verbose_name="duration (ms)")),
                ("version", models.IntegerField(default=1, verbose_name="version")),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("updated_at", models.DateTimeField(verbose_name="updated at")),
                ("completed_at", models.DateTimeField(blank=True, null=True, verbose_name="completed at")),
                ("deleted_at", models.DateTimeField(blank=True, null=True, verbose_name="deleted at")),
                ("deleted_by", models.TextField(blank=True, default="", verbose_name="deleted by")),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="messages",
                        to="messages_app.session",
                        verbose_name="session",
                    ),
                ),
                ("model_error_count", models.IntegerField(db_default=0, default=0, verbose_name="model errors")),
                (
                    "cost",
                    models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True, verbose_name="cost"),
                ),
                ("unpriced_count", models.IntegerField(db_default=0, default=0, verbose_name="steps without a cost")),
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "ordering": ["-id"],
                "default_manager_name": "objects",
                "indexes": [
                    models.Index(fields=["session", "id"], name="message_session_page"),
                    models.Index(fields=["project", "id"], name="message_project_page"),
                    models.Index(
                        condition=models.Q(("is_completed", False)), fields=["project", "id"], name="message_running"
                    ),
                    models.Index(
                        condition=models.Q(("request_id", ""), _negated=True),
                        fields=["request_id"],
                        name="message_request_id",
                    ),
                    models.Index(
                        condition=models.Q(("external_id", ""), _negated=True),
                        fields=["external_id"],
                        name="message_external_id",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False)),
                        fields=["project", "id"],
                        name="message_trash",
                    ),
                    models.Index(
                        condition=models.Q(("health", []), _negated=True),
                        fields=["project", "id"],
                        name="message_health",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("failure_count__gt", 0),
                            models.Q(("error", ""), _negated=True),
                            ("model_error_count__gt", 0),
                            _connector="OR",
                        ),
                        fields=["project", "id"],
                        name="message_errors",
                    ),
                    models.Index(
                        django.db.models.fields.json.KeyTextTransform("root_tool_id", "metadata"),
                        condition=models.Q(("metadata__has_key", "root_tool_id")),
                        name="message_root_tool",
                    ),
                    models.Index(
                        condition=models.Q(("cost__isnull", False)), fields=["project", "cost"], name="message_cost"
                    ),
                    models.Index(
                        condition=models.Q(("role", "system")), fields=["project", "id"], name="message_system"
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False)),
                        fields=["deleted_at", "id"],
                        name="message_trash_order",
                    ),
                ],
            },
        ),
        CreatePartitionedModel(
            name="Reference",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("position", models.IntegerField(verbose_name="position")),
                ("reference_id", models.TextField(blank=True, default="", verbose_name="reference id")),
                ("content", models.TextField(blank=True, default="", verbose_name="content")),
                ("knowledge_id", models.TextField(blank=True, default="", verbose_name="knowledge id")),
                ("chunk_index", models.BigIntegerField(default=0, verbose_name="chunk index")),
                ("knowledge_title", models.TextField(blank=True, default="", verbose_name="knowledge title")),
                ("start_at", models.BigIntegerField(default=0, verbose_name="start")),
                ("end_at", models.BigIntegerField(default=0, verbose_name="end")),
                ("seq", models.BigIntegerField(default=0, verbose_name="sequence")),
                ("score", models.FloatField(default=0, verbose_name="score")),
                ("match_type", models.IntegerField(default=0, verbose_name="match type")),
                ("sub_chunk_id", models.JSONField(blank=True, null=True, verbose_name="sub-chunk ids")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("chunk_type", models.TextField(blank=True, default="", verbose_name="chunk type")),
                ("parent_chunk_id", models.TextField(blank=True, default="", verbose_name="parent chunk id")),
                ("image_info", models.TextField(blank=True, default="", verbose_name="image info")),
                ("knowledge_filename", models.TextField(blank=True, default="", verbose_name="file name")),
                ("knowledge_source", models.TextField(blank=True, default="", verbose_name="source")),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="references",
                        to="messages_app.message",
                        verbose_name="message",
                    ),
                ),
            ],
            options={
                "verbose_name": "reference",
                "verbose_name_plural": "references",
                "ordering": ["message", "position"],
                "indexes": [models.Index(fields=["message"], name="reference_message")],
            },
        ),
        migrations.CreateModel(
            name="ChangedHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("begin", models.DateTimeField()),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["begin", "project"], name="changed_hour")],
            },
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80, verbose_name="name")),
                ("list_name", models.CharField(max_length=100)),
                ("query", models.CharField(max_length=2000)),
                (
                    "shared",
                    models.BooleanField(
                        default=False,
                        help_text="Everyone who has a project in common with you sees the view.",
                        verbose_name="shared",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created at"),
                ),
                (
                    "owner",
                    access_app.people.PersonKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
            ],
            options={
                "verbose_name": "saved view",
                "verbose_name_plural": "saved views",
                "constraints": [models.UniqueConstraint(fields=("list_name", "owner", "name"), name="saved_view_name")],
            },
        ),
        migrations.CreateModel(
            name="ListColumns",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("list_name", models.CharField(max_length=100)),
                (
                    "names",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100), size=None),
                ),
                (
                    "owner",
                    access_app.people.PersonKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("owner", "list_name"), name="list_columns")],
            },
        ),
        migrations.CreateModel(
            name="SealMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.UUIDField()),
                ("token", models.BinaryField()),
                ("queued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["message_id"], name="seal_mark_message")],
            },
        ),
    ]
