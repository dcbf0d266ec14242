"""Columns from which the status of a session is computed, and a count of model errors.

All of them have constant defaults, so adding them reads no row. The values of existing rows come with 0007 and with
0005 of traces_app, and `status` comes back in 0007.
"""

from django.db import migrations, models
from django.db.models.functions import Now

STATUSES = [
    ("planning", "planning"),
    ("running", "running"),
    ("paused", "paused"),
    ("completed", "completed"),
    ("error", "error"),
    ("aborted", "aborted"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0005_session_pinned_at"),
    ]

    operations = [
        migrations.AddField(
            model_name="message",
            name="model_error_count",
            field=models.IntegerField(db_default=0, default=0, verbose_name="model errors"),
        ),
        migrations.RenameField(model_name="session", old_name="status", new_name="said_status"),
        migrations.AlterField(
            model_name="session",
            name="said_status",
            field=models.CharField(blank=True, choices=STATUSES, db_default="", default="", max_length=16),
        ),
        migrations.AddField(
            model_name="session",
            name="problem_count",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="problems"),
        ),
        migrations.AddField(
            model_name="session",
            name="open_count",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="open messages"),
        ),
        migrations.AddField(
            model_name="session",
            name="last_run_id",
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="last_run_failed",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="session",
            name="active_at",
            field=models.DateTimeField(db_default=Now(), verbose_name="last activity"),
        ),
    ]
