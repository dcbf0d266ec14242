"""The first tables. Message and Reference are partitioned by month (messages_app/sql/partitions.py)."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("access_app", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="PurgedMonth",
            fields=[
                ("month", models.DateField(primary_key=True, serialize=False)),
                ("purged_at", models.DateTimeField()),
            ],
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
                    "status",
                    models.CharField(
                        choices=[
                            ("planning", "planning"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("completed", "completed"),
                            ("error", "error"),
                            ("aborted", "aborted"),
                        ],
                        default="running",
                        max_length=16,
                        verbose_name="status",
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
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "ordering": ["-id"],
                "default_manager_name": "objects",
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
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "ordering": ["-id"],
                "default_manager_name": "objects",
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
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["project", "id"], name="session_page"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("end_user", ""), _negated=True),
                fields=["project", "end_user", "id"],
                name="session_end_user",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=django.contrib.postgres.indexes.GinIndex(fields=["tags"], name="session_tags"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)), fields=["project", "id"], name="session_trash"
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(("external_id", ""), _negated=True),
                fields=("project", "external_id"),
                name="session_external_id",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["session", "id"], name="message_session_page"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["project", "id"], name="message_project_page"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("failure_count__gt", 0), models.Q(("error", ""), _negated=True), _connector="OR"),
                fields=["project", "id"],
                name="message_errors",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("is_completed", False)), fields=["project", "id"], name="message_running"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("request_id", ""), _negated=True), fields=["request_id"], name="message_request_id"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("external_id", ""), _negated=True),
                fields=["external_id"],
                name="message_external_id",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)), fields=["project", "id"], name="message_trash"
            ),
        ),
    ]
