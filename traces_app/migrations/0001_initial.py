"""The first tables. AgentStep, ToolCall and ToolResult are partitioned by month (messages_app/sql/partitions.py)."""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("access_app", "0001_initial"),
        ("messages_app", "0001_initial"),
    ]

    operations = [
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
            ],
            options={
                "verbose_name": "tool call",
                "verbose_name_plural": "tool calls",
                "ordering": ["-id"],
                "default_manager_name": "objects",
            },
        ),
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
            ],
            options={
                "verbose_name": "agent step",
                "verbose_name_plural": "agent steps",
                "ordering": ["message", "iteration", "ordinal"],
                "default_manager_name": "objects",
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
        migrations.AddField(
            model_name="toolcall",
            name="step",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="calls",
                to="traces_app.agentstep",
                verbose_name="step",
            ),
        ),
        migrations.AddField(
            model_name="toolcall",
            name="tool",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="calls",
                to="traces_app.tool",
                verbose_name="tool",
            ),
        ),
        migrations.AddIndex(
            model_name="agentstep",
            index=models.Index(fields=["message"], name="step_message"),
        ),
        migrations.AddConstraint(
            model_name="tool",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="tool_name"),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(fields=["message"], name="call_message"),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(fields=["project", "id"], name="call_project_page"),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(fields=["tool", "id"], name="call_tool_page"),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(
                condition=models.Q(("status", "success"), _negated=True),
                fields=["project", "status", "id"],
                name="call_project_status",
            ),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(
                condition=models.Q(("status", "success"), _negated=True),
                fields=["tool", "status", "id"],
                name="call_tool_status",
            ),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(
                condition=models.Q(("call_id", ""), _negated=True), fields=["call_id"], name="call_call_id"
            ),
        ),
    ]
