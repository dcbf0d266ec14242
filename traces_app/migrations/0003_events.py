"""Events, partitioned by month (messages_app/sql/partitions.py), with the long ones compressed by lz4 where the server has it."""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


def use_lz4(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        if cursor.fetchone() == (True,):
            cursor.execute("ALTER TABLE traces_app_event ALTER COLUMN data SET COMPRESSION lz4")


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0002_access_changed"),
        ("messages_app", "0004_session_last_event"),
        ("traces_app", "0002_toast_lz4"),
    ]

    operations = [
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
        migrations.RunPython(use_lz4, migrations.RunPython.noop),
    ]
