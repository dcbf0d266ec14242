"""Everything below messages, scores, prices, the search, seals, archives and snapshots; two functions for ingest, and shipped prices.

The large tables are partitioned by period (messages_app/sql/partitions.py).
"""

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import msgspec
from django.conf import settings
from django.db import migrations, models

import access_app.people
from messages_app.sql.partitions import CreatePartitionedModel
from traces_app.maintenance.prices import shipped_prices

# Ingest sends all statements of a batch at once, as one transaction that is committed by the time of the answer. Only an error raised by
# the server can undo it if the session was deleted or purged meanwhile.
REQUIRE_SESSION = """
    CREATE FUNCTION traces_app_require_session(updated bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        IF updated = 0 THEN
            RAISE EXCEPTION 'The session is deleted or gone.' USING ERRCODE = 'no_data_found';
        END IF;
    END $$
    """
REQUIRE_NO_SESSION = "DROP FUNCTION traces_app_require_session(bigint)"
# A new title queues the messages of a session for the search index.
QUEUE_RETITLED = """
    CREATE FUNCTION traces_app_queue_retitled(session uuid, new_title text) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        old_title text;
    BEGIN
        SELECT title INTO old_title FROM messages_app_session WHERE id = session FOR NO KEY UPDATE;
        IF old_title <> new_title THEN
            INSERT INTO traces_app_unindexedmessage (message_id)
            SELECT id FROM messages_app_message WHERE session_id = session ORDER BY id;
        END IF;
    END $$
    """
QUEUE_NOTHING = "DROP FUNCTION traces_app_queue_retitled(uuid, text)"
# Whole numbers hardly compress; a vector of 1,000 places stays in its row.
KEEP_VECTORS_IN_ROWS = "ALTER TABLE traces_app_runvector ALTER vector SET STORAGE MAIN"
# Long values are compressed with lz4 where the server has it (25 % faster ingest); partitions inherit it.
LONG_VALUES = """
    SELECT format(
        'ALTER TABLE %s %s', attrelid::regclass, string_agg(format('ALTER %I SET COMPRESSION lz4', attname), ', ')
    )
    FROM pg_attribute
    WHERE attnum > 0 AND NOT attisdropped AND atttypid IN ('text'::regtype, 'jsonb'::regtype) AND (
        attrelid IN (
            'messages_app_message'::regclass, 'messages_app_reference'::regclass, 'traces_app_agentstep'::regclass,
            'traces_app_toolcall'::regclass, 'traces_app_toolresult'::regclass
        ) AND attname <> 'input_ref'
        OR attrelid = 'traces_app_event'::regclass AND attname = 'data'
        OR attrelid IN ('traces_app_context'::regclass, 'traces_app_span'::regclass) AND attname = 'content'
    )
    GROUP BY attrelid
    """


def use_lz4(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        if cursor.fetchone() == (True,):
            cursor.execute(LONG_VALUES)
            for (statement,) in cursor.fetchall():
                cursor.execute(statement)


def fill_prices(apps, schema_editor):
    """Store the prices that Tracesite ships, if there are none yet; later ones are imported by import_prices."""
    model = apps.get_model("traces_app", "ModelPrice")
    prices = model.objects.using(schema_editor.connection.alias)
    if not prices.exists():
        known = {field.name for field in model._meta.get_fields()} - {"project"}
        rows = [msgspec.structs.asdict(row) for row in shipped_prices()]
        prices.bulk_create(model(**{name: value for name, value in row.items() if name in known}) for row in rows)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("access_app", "0001_initial"),
        ("messages_app", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        CreatePartitionedModel(
            name="AgentStep",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("iteration", models.IntegerField(verbose_name="iteration")),
                ("ordinal", models.IntegerField(verbose_name="ordinal")),
                ("thought", models.TextField(blank=True, default="", verbose_name="thought")),
                ("reasoning", models.TextField(blank=True, default="", verbose_name="reasoning")),
                ("agent_name", models.TextField(blank=True, default="", verbose_name="agent")),
                ("model", models.TextField(blank=True, default="", verbose_name="model")),
                ("usage", models.JSONField(blank=True, null=True, verbose_name="usage")),
                ("timestamp", models.DateTimeField(blank=True, null=True, verbose_name="time")),
                ("duration_ms", models.BigIntegerField(blank=True, null=True, verbose_name="duration (ms)")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="steps",
                        to="messages_app.message",
                        verbose_name="message",
                    ),
                ),
                ("input_ref", models.TextField(blank=True, default="", verbose_name="model input")),
                (
                    "time_to_first_token_ms",
                    models.BigIntegerField(blank=True, null=True, verbose_name="time to first token (ms)"),
                ),
                (
                    "cost",
                    models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True, verbose_name="cost"),
                ),
                ("said_cost", models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True)),
            ],
            options={
                "verbose_name": "agent step",
                "verbose_name_plural": "agent steps",
                "ordering": ["message", "iteration", "ordinal"],
                "default_manager_name": "objects",
                "indexes": [models.Index(fields=["message"], name="step_message")],
            },
        ),
        migrations.CreateModel(
            name="Tool",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField(verbose_name="name")),
                ("description", models.TextField(blank=True, default="", verbose_name="description")),
                ("category", models.TextField(blank=True, default="", verbose_name="category")),
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
                "verbose_name": "tool",
                "verbose_name_plural": "tools",
                "ordering": ["project", "name"],
                "constraints": [models.UniqueConstraint(fields=("project", "name"), name="tool_name")],
            },
        ),
        CreatePartitionedModel(
            name="ToolCall",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("call_id", models.TextField(blank=True, default="", verbose_name="call id")),
                ("position", models.IntegerField(verbose_name="position")),
                ("args", models.JSONField(blank=True, default=dict, verbose_name="arguments")),
                ("reflection", models.TextField(blank=True, default="", verbose_name="reflection")),
                (
                    "status",
                    models.CharField(
                        choices=[("pending", "pending"), ("success", "success"), ("error", "error")],
                        default="pending",
                        max_length=16,
                        verbose_name="status",
                    ),
                ),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started at")),
                ("completed_at", models.DateTimeField(blank=True, null=True, verbose_name="completed at")),
                ("duration_ms", models.BigIntegerField(blank=True, null=True, verbose_name="duration (ms)")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="calls",
                        to="messages_app.message",
                        verbose_name="message",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="children",
                        to="traces_app.toolcall",
                        verbose_name="parent call",
                    ),
                ),
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
                    "step",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="calls",
                        to="traces_app.agentstep",
                        verbose_name="step",
                    ),
                ),
                (
                    "tool",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="calls",
                        to="traces_app.tool",
                        verbose_name="tool",
                    ),
                ),
            ],
            options={
                "verbose_name": "tool call",
                "verbose_name_plural": "tool calls",
                "ordering": ["-id"],
                "default_manager_name": "objects",
                "indexes": [
                    models.Index(fields=["message"], name="call_message"),
                    models.Index(fields=["project", "id"], name="call_project_page"),
                    models.Index(fields=["tool", "id"], name="call_tool_page"),
                    models.Index(
                        condition=models.Q(("status", "success"), _negated=True),
                        fields=["project", "status", "id"],
                        name="call_project_status",
                    ),
                    models.Index(
                        condition=models.Q(("status", "success"), _negated=True),
                        fields=["tool", "status", "id"],
                        name="call_tool_status",
                    ),
                    models.Index(
                        condition=models.Q(("call_id", ""), _negated=True), fields=["call_id"], name="call_call_id"
                    ),
                ],
            },
        ),
        CreatePartitionedModel(
            name="ToolResult",
            fields=[
                (
                    "call",
                    models.OneToOneField(
                        db_column="id",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="result",
                        serialize=False,
                        to="traces_app.toolcall",
                        verbose_name="call",
                    ),
                ),
                ("output", models.TextField(blank=True, default="", verbose_name="output")),
                ("data", models.JSONField(blank=True, null=True, verbose_name="data")),
                ("error", models.TextField(blank=True, default="", verbose_name="error")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("attachments", models.JSONField(blank=True, default=list, verbose_name="attachments")),
                ("raw", models.TextField(blank=True, null=True, verbose_name="raw text")),
            ],
            options={
                "verbose_name": "tool result",
                "verbose_name_plural": "tool results",
            },
        ),
        CreatePartitionedModel(
            name="Event",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("seq", models.BigIntegerField(verbose_name="number")),
                ("external_id", models.TextField(verbose_name="external id")),
                ("number", models.BigIntegerField(blank=True, null=True, verbose_name="producer's number")),
                ("type", models.TextField(verbose_name="type")),
                ("level", models.TextField(verbose_name="level")),
                ("category", models.TextField(verbose_name="category")),
                ("timestamp", models.DateTimeField(verbose_name="time")),
                ("agent", models.TextField(blank=True, default="", verbose_name="agent")),
                ("subject", models.TextField(blank=True, default="", verbose_name="subject")),
                ("data", models.JSONField(blank=True, default=dict, verbose_name="data")),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="events",
                        to="messages_app.message",
                        verbose_name="message",
                    ),
                ),
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
                        related_name="events",
                        to="messages_app.session",
                        verbose_name="session",
                    ),
                ),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "ordering": ["session", "seq"],
                "indexes": [
                    models.Index(fields=["session", "seq"], name="event_session_seq"),
                    models.Index(fields=["session", "external_id"], name="event_external_id"),
                    models.Index(fields=["session", "subject"], name="event_subject"),
                ],
            },
        ),
        CreatePartitionedModel(
            name="Context",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("ref", models.TextField(verbose_name="reference")),
                ("kind", models.TextField(verbose_name="kind")),
                ("length", models.BigIntegerField(verbose_name="length")),
                ("size", models.BigIntegerField(verbose_name="bytes")),
                ("content", models.JSONField(verbose_name="content")),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), blank=True, null=True, size=None, verbose_name="entries"
                    ),
                ),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                (
                    "message",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="contexts",
                        to="messages_app.message",
                        verbose_name="message",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="contexts",
                        to="messages_app.session",
                        verbose_name="session",
                    ),
                ),
            ],
            options={
                "verbose_name": "context",
                "verbose_name_plural": "contexts",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("kind", "entry"), _negated=True),
                        fields=["session", "id"],
                        name="context_session_page",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "entry"), _negated=True),
                        fields=["session", "ref"],
                        name="context_ref",
                    ),
                    models.Index(condition=models.Q(("kind", "entry")), fields=["session"], name="context_entries"),
                ],
            },
        ),
        CreatePartitionedModel(
            name="Span",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("trace_id", models.UUIDField(verbose_name="trace")),
                (
                    "kind",
                    models.CharField(
                        choices=[("span", "span"), ("log", "log record"), ("media", "media")],
                        default="span",
                        max_length=8,
                        verbose_name="kind",
                    ),
                ),
                ("content", models.TextField(verbose_name="content")),
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
            ],
            options={
                "verbose_name": "span",
                "verbose_name_plural": "spans",
                "ordering": ["id"],
                "indexes": [models.Index(fields=["project", "trace_id"], name="span_trace")],
            },
        ),
        migrations.CreateModel(
            name="Score",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("session_name", models.TextField(blank=True, default="", verbose_name="session (external id)")),
                ("message_name", models.TextField(blank=True, default="", verbose_name="message (external id)")),
                ("call_name", models.TextField(blank=True, default="", verbose_name="call id")),
                ("trace_id", models.UUIDField(blank=True, null=True, verbose_name="trace")),
                ("span_id", models.CharField(blank=True, default="", max_length=16, verbose_name="span")),
                ("name", models.TextField(verbose_name="name")),
                (
                    "kind",
                    models.CharField(
                        choices=[("numeric", "numeric"), ("boolean", "yes or no"), ("categorical", "categorical")],
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                ("number", models.FloatField(blank=True, null=True, verbose_name="value")),
                ("label", models.TextField(blank=True, default="", verbose_name="label")),
                ("comment", models.TextField(blank=True, default="", verbose_name="comment")),
                (
                    "source",
                    models.CharField(
                        choices=[("person", "person"), ("program", "program"), ("evaluator", "evaluator")],
                        max_length=16,
                        verbose_name="source",
                    ),
                ),
                ("author", models.TextField(blank=True, default="", verbose_name="author")),
                ("external_id", models.TextField(blank=True, null=True, verbose_name="external id")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("redactions", models.JSONField(blank=True, default=list, verbose_name="redactions")),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("updated_at", models.DateTimeField(verbose_name="updated at")),
                ("deleted_at", models.DateTimeField(blank=True, null=True, verbose_name="deleted at")),
                (
                    "call",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="scores",
                        to="traces_app.toolcall",
                        verbose_name="tool call",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="scores",
                        to="messages_app.message",
                        verbose_name="message",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="scores",
                        to="messages_app.session",
                        verbose_name="session",
                    ),
                ),
            ],
            options={
                "verbose_name": "score",
                "verbose_name_plural": "scores",
                "ordering": ["-id"],
                "default_manager_name": "objects",
                "indexes": [
                    models.Index(fields=["project", "id"], name="score_page"),
                    models.Index(fields=["project", "name", "number"], name="score_name"),
                    models.Index(fields=["session", "id"], name="score_session"),
                    models.Index(
                        condition=models.Q(("message__isnull", False)), fields=["message", "id"], name="score_message"
                    ),
                    models.Index(
                        condition=models.Q(("trace_id__isnull", False)),
                        fields=["project", "trace_id"],
                        name="score_trace",
                    ),
                    models.Index(
                        condition=models.Q(("session__isnull", True)),
                        fields=["project", "session_name"],
                        name="score_pending",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("project", "external_id"), name="score_external_id")],
            },
        ),
        migrations.CreateModel(
            name="ModelPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "model",
                    models.TextField(
                        help_text="A name, or its beginning with a * at the end. Case does not matter.",
                        verbose_name="model",
                    ),
                ),
                (
                    "valid_from",
                    models.DateField(blank=True, help_text="UTC. Empty: always.", null=True, verbose_name="valid from"),
                ),
                (
                    "valid_until",
                    models.DateField(blank=True, help_text="The last day, UTC.", null=True, verbose_name="valid until"),
                ),
                (
                    "input",
                    models.DecimalField(
                        decimal_places=6,
                        max_digits=14,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="input",
                    ),
                ),
                (
                    "cached_input",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=14,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cached input",
                    ),
                ),
                (
                    "cache_write",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=14,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cache write",
                    ),
                ),
                (
                    "output",
                    models.DecimalField(
                        decimal_places=6,
                        max_digits=14,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="output",
                    ),
                ),
                (
                    "reasoning",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=14,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="reasoning",
                    ),
                ),
                (
                    "as_of",
                    models.DateField(help_text="The day on which the published price was read.", verbose_name="as of"),
                ),
                (
                    "source",
                    models.TextField(
                        blank=True, default="", help_text="Where the price was published.", verbose_name="source"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="Empty: for all projects. A price of the project goes before it.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "verbose_name": "model price",
                "verbose_name_plural": "model prices",
                "ordering": ["model", "project", "-valid_from"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "model", "valid_from"), name="price_of_model", nulls_distinct=False
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ToolRollUp",
            fields=[
                ("id", models.IntegerField(default=1, primary_key=True, serialize=False)),
                ("rolled_until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="ToolPeriod",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("unit", models.CharField(choices=[("hour", "Hour"), ("day", "Day")], max_length=4)),
                ("begin", models.DateTimeField()),
                (
                    "status",
                    models.CharField(
                        choices=[("pending", "pending"), ("success", "success"), ("error", "error")], max_length=16
                    ),
                ),
                ("calls", models.BigIntegerField()),
                ("timed_calls", models.BigIntegerField()),
                ("total_ms", models.FloatField()),
                ("longest_ms", models.BigIntegerField(null=True)),
                ("buckets", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                ("counts", django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
                (
                    "tool",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="traces_app.tool",
                    ),
                ),
                ("cost", models.DecimalField(decimal_places=10, max_digits=20, null=True)),
                ("priced_calls", models.BigIntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["begin", "unit", "project"], name="tool_period_begin")],
                "constraints": [
                    models.UniqueConstraint(fields=("tool", "unit", "begin", "status"), name="tool_period")
                ],
            },
        ),
        migrations.CreateModel(
            name="UnindexedMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.UUIDField()),
                ("queued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["message_id"], name="unindexed_message")],
            },
        ),
        CreatePartitionedModel(
            name="SearchSegment",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("rows", models.IntegerField()),
                ("first_message", models.UUIDField()),
                ("last_message", models.UUIDField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("first_session", models.UUIDField()),
                ("last_session", models.UUIDField()),
            ],
        ),
        CreatePartitionedModel(
            name="SearchRows",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id", "chunk", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("segment_id", models.UUIDField(db_column="id")),
                ("chunk", models.IntegerField()),
                ("rows", models.BinaryField()),
            ],
        ),
        CreatePartitionedModel(
            name="SearchPosting",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id", "gram", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("segment_id", models.UUIDField(db_column="id")),
                ("gram", models.BigIntegerField()),
                ("rows", models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name="UnvectoredMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.UUIDField()),
            ],
        ),
        migrations.CreateModel(
            name="EmbedderInUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField()),
                ("width", models.IntegerField()),
            ],
        ),
        CreatePartitionedModel(
            name="RunVector",
            fields=[
                (
                    "message",
                    models.OneToOneField(
                        db_column="id",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="vector",
                        serialize=False,
                        to="messages_app.message",
                    ),
                ),
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
                ("embedder_id", models.IntegerField()),
                ("vector", models.BinaryField()),
            ],
            options={
                "indexes": [models.Index(fields=["project", "message"], name="vector_project_page")],
            },
        ),
        migrations.CreateModel(
            name="SealLayout",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.BinaryField(unique=True)),
                ("columns", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="SealBatch",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("kind", models.CharField(choices=[("seals", "Seals"), ("month", "Month")], max_length=5)),
                ("month", models.DateField()),
                ("sealed_at", models.DateTimeField()),
                ("key_id", models.CharField(max_length=8)),
                ("count", models.IntegerField()),
                ("members", models.BinaryField()),
                ("digest", models.BinaryField()),
                ("mac", models.BinaryField()),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
                (
                    "layout",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="traces_app.seallayout",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["month", "id"], name="seal_batch_month")],
            },
        ),
        CreatePartitionedModel(
            name="MessageSeal",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "message_id", "batch", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("message_id", models.UUIDField(db_column="id")),
                ("batch", models.BigIntegerField()),
                ("state", models.CharField(choices=[("s", "Sealed"), ("o", "Open"), ("r", "Removed")], max_length=1)),
                ("kinds", models.IntegerField()),
                ("parts", models.BinaryField()),
                ("nonces", models.BinaryField()),
                ("mac", models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name="Archive",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("month", models.DateField()),
                ("url", models.TextField()),
                ("rows", models.BigIntegerField()),
                ("fingerprint", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("dropped_at", models.DateTimeField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
                ("period", models.TextField(db_default="", default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "month", "period", "url"), name="archive_of_period")
                ],
            },
        ),
        migrations.CreateModel(
            name="ArchivedSession",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField()),
                (
                    "archive",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="sessions", to="traces_app.archive"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["key"], name="archived_session_key")],
            },
        ),
        migrations.CreateModel(
            name="SnapshotSums",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="snapshot_sums",
                        serialize=False,
                        to="messages_app.session",
                    ),
                ),
                ("generation", models.IntegerField(default=0)),
                ("size", models.BigIntegerField(default=0)),
                ("left_out", models.JSONField(default=dict)),
                ("fork", models.JSONField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Snapshot",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("external_id", models.TextField(verbose_name="external id")),
                ("ts", models.BigIntegerField()),
                ("node_ids", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ("context_ref", models.TextField()),
                ("notes", models.JSONField(default=list)),
                ("redactions", models.JSONField(default=list)),
                ("is_purged", models.BooleanField(default=False)),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="snapshots",
                        to="messages_app.session",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["session", "id"], name="snapshot_session_page")],
                "constraints": [
                    models.UniqueConstraint(fields=("external_id", "session"), name="snapshot_external_id")
                ],
            },
        ),
        migrations.CreateModel(
            name="SnapshotPart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ref", models.TextField()),
                ("content", models.BinaryField()),
                ("below", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="messages_app.session",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("session", "ref"), name="snapshot_part")],
            },
        ),
        migrations.CreateModel(
            name="Erasure",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("subject", models.TextField()),
                ("projects", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("found", models.JSONField()),
                ("removed", models.JSONField(default=dict)),
                ("ids_sha256", models.TextField()),
                ("archives", models.JSONField(default=list)),
            ],
        ),
        migrations.CreateModel(
            name="JobRun",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("next_at", models.DateTimeField()),
                ("succeeded_at", models.DateTimeField(null=True)),
                ("error", models.TextField(default="")),
                ("counts", models.JSONField(default=dict)),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.CreateModel(
            name="MaskingRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rules", models.JSONField()),
                ("requested_at", models.DateTimeField(verbose_name="requested at")),
                ("reached", models.UUIDField(null=True)),
                ("read", models.BigIntegerField(default=0)),
                ("changed", models.BigIntegerField(default=0)),
                ("removed", models.JSONField(default=dict)),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                ("error", models.TextField(default="")),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "requested_by",
                    access_app.people.PersonKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="requested by",
                    ),
                ),
            ],
            options={
                "verbose_name": "masking of stored traces",
                "verbose_name_plural": "masking of stored traces",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("finished_at", None)),
                        fields=("project",),
                        name="one_masking_run_of_a_project",
                    )
                ],
            },
        ),
        migrations.RunSQL(KEEP_VECTORS_IN_ROWS, migrations.RunSQL.noop),
        migrations.RunSQL(REQUIRE_SESSION, REQUIRE_NO_SESSION),
        migrations.RunSQL(QUEUE_RETITLED, QUEUE_NOTHING),
        migrations.RunPython(use_lz4, migrations.RunPython.noop),
        migrations.RunPython(fill_prices, migrations.RunPython.noop),
    ]
