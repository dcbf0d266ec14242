"""Fills the columns of 0006 and makes `status` a generated column.

A status that the messages of a session show by themselves is not kept as one that its producer stated, and neither is
"running", which was the default. Every other status is kept. Messages and sessions are read once.
"""

from django.db import migrations, models
from django.db.models import Case, Q, Value, When

# Steps are of traces_app, whose 0005 does the same. A dependency on it would make a circle of the squashed migrations.
COUNT = """
    DO $$ BEGIN
        IF to_regclass('traces_app_agentstep') IS NOT NULL THEN
            UPDATE messages_app_message AS message SET model_error_count = found.number
            FROM (
                SELECT message_id, count(*) AS number FROM traces_app_agentstep
                WHERE metadata ? 'error' AND metadata -> 'error' NOT IN ('null', '""', 'false', '0', '{}', '[]')
                GROUP BY message_id
            ) AS found
            WHERE message.id = found.message_id;
        END IF;
    END $$
    """
# The newest run and whether it failed in one aggregate: ids sort as texts as they do as UUIDs, which have no max().
FILL = """
    UPDATE messages_app_session AS session SET
        problem_count = coalesce(found.problems, 0),
        open_count = coalesce(found.opened, 0),
        last_run_id = left(found.last_run, 36)::uuid,
        last_run_failed = coalesce(right(found.last_run, 1) = '1', false),
        active_at = greatest(session.created_at, found.active_at),
        said_status = CASE
            WHEN session.said_status = 'running' THEN ''
            WHEN session.said_status = CASE
                WHEN found.opened > 0 THEN 'running'
                WHEN found.messages IS NULL THEN 'running'
                WHEN right(found.last_run, 1) = '1' THEN 'error'
                ELSE 'completed' END THEN ''
            ELSE session.said_status END
    FROM messages_app_session AS same LEFT JOIN (
        SELECT session_id, count(*) AS messages, count(*) FILTER (WHERE NOT is_completed) AS opened,
            sum(failure_count + model_error_count + (error <> '')::int) AS problems,
            max(least(greatest(created_at, completed_at), now())) AS active_at,
            max((id::text || (error <> '')::int::text) COLLATE "C") FILTER (WHERE role = 'assistant') AS last_run
        FROM messages_app_message WHERE deleted_at IS NULL GROUP BY session_id
    ) AS found ON found.session_id = same.id
    WHERE session.id = same.id
    """
KEEP = "UPDATE messages_app_session SET said_status = status"


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0006_session_lifecycle"),
    ]

    operations = [
        migrations.RunSQL(COUNT, migrations.RunSQL.noop),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
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
                    When(~Q(said_status=""), then="said_status"),
                    When(open_count__gt=0, then=Value("running")),
                    When(message_count=0, last_run_id=None, then=Value("running")),
                    When(last_run_failed=True, then=Value("error")),
                    default=Value("completed"),
                ),
                output_field=models.CharField(max_length=16),
                verbose_name="status",
            ),
        ),
        migrations.RunSQL(migrations.RunSQL.noop, KEEP),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["active_at", "id"], name="session_active"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=~Q(status="completed"), fields=["project", "status", "id"], name="session_not_completed"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(condition=Q(problem_count__gt=0), fields=["project", "id"], name="session_problems"),
        ),
        # The condition of this index has changed. It is built while writers wait, as every index of messages.
        migrations.RemoveIndex(model_name="message", name="message_errors"),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=Q(("failure_count__gt", 0), ~Q(error=""), ("model_error_count__gt", 0), _connector="OR"),
                fields=["project", "id"],
                name="message_errors",
            ),
        ),
    ]
