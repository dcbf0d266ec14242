"""Sessions whose last run was interrupted, and those that were abandoned, are "aborted".

An expression of a generated column cannot be changed in place, so `status` is made anew: PostgreSQL writes the table of
sessions once, some seconds for a million. What was sent meanwhile waits.
"""

from django.db import migrations, models
from django.db.models import Case, Q, Value, When

# Few messages have a flag, and an index has those.
FILL = """
    UPDATE messages_app_session AS session SET last_interruption = left(coalesce(run.metadata -> 'interrupted' ->> 'reason', 'no_news'), 16) FROM messages_app_message AS run
    WHERE run.health <> '{}' AND 'interrupted' = ANY(run.health) AND run.is_completed AND session.last_run_id = run.id
    """


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0016_forks"),
    ]

    operations = [
        migrations.AddField(
            model_name="session", name="last_interruption", field=models.CharField(max_length=16, null=True)
        ),
        migrations.AddField(model_name="session", name="is_abandoned", field=models.BooleanField(null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RemoveIndex(model_name="session", name="session_not_completed"),
        migrations.RemoveField(model_name="session", name="status"),
        migrations.AddField(
            model_name="session",
            name="status",
            field=models.GeneratedField(
                choices=[
                    ("planning", "planning"),
                    ("running", "running"),
                    ("paused", "paused"),
                    ("completed", "completed"),
                    ("error", "error"),
                    ("aborted", "aborted"),
                ],
                db_persist=True,
                expression=Case(
                    When(is_abandoned=True, then=Value("aborted")),
                    When(~Q(said_status=""), then="said_status"),
                    When(open_count__gt=0, then=Value("running")),
                    When(message_count=0, last_run_id=None, then=Value("running")),
                    When(~Q(last_interruption=""), last_interruption__isnull=False, then=Value("aborted")),
                    When(last_run_failed=True, then=Value("error")),
                    default=Value("completed"),
                ),
                output_field=models.CharField(max_length=16),
                verbose_name="status",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=~Q(status="completed"), fields=["project", "status", "id"], name="session_not_completed"
            ),
        ),
    ]
