"""Contexts, partitioned by month (messages_app/sql/partitions.py), compressed by lz4 where the server has it."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from messages_app.sql.partitions import CreatePartitionedModel


def use_lz4(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        if cursor.fetchone() == (True,):
            cursor.execute("ALTER TABLE traces_app_context ALTER COLUMN content SET COMPRESSION lz4")


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0004_session_last_event"),
        ("traces_app", "0003_events"),
    ]

    operations = [
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
                        db_constraint=False,
                        db_index=False,
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
                    models.Index(condition=~Q(kind="entry"), fields=["session", "id"], name="context_session_page"),
                    models.Index(condition=~Q(kind="entry"), fields=["session", "ref"], name="context_ref"),
                ],
            },
        ),
        migrations.RunPython(use_lz4, migrations.RunPython.noop),
    ]
