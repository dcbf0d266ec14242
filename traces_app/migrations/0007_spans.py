"""Spans, partitioned by month (messages_app/sql/partitions.py), compressed by lz4 where the server has it."""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


def use_lz4(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        if cursor.fetchone() == (True,):
            cursor.execute("ALTER TABLE traces_app_span ALTER COLUMN content SET COMPRESSION lz4")


class Migration(migrations.Migration):
    dependencies = [("access_app", "0001_initial"), ("traces_app", "0006_require_session")]

    operations = [
        CreatePartitionedModel(
            name="Span",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False, verbose_name="id")),
                ("trace_id", models.UUIDField(verbose_name="trace")),
                (
                    "kind",
                    models.CharField(
                        choices=[("span", "span"), ("log", "log record")],
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
        migrations.RunPython(use_lz4, migrations.RunPython.noop),
    ]
