"""Searches of sessions: the index knows the session of each row, so it is built again; a new title queues the messages of a session."""

from django.db import migrations, models

_QUEUE = """
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


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0016_run_vectors")]

    operations = [
        migrations.RunSQL(
            """
            TRUNCATE traces_app_searchsegment, traces_app_searchrows, traces_app_searchposting, traces_app_unindexedmessage;
            INSERT INTO traces_app_unindexedmessage (message_id) SELECT id FROM messages_app_message ORDER BY id
            """,
            migrations.RunSQL.noop,
        ),
        migrations.AddField("searchsegment", "first_session", models.UUIDField()),
        migrations.AddField("searchsegment", "last_session", models.UUIDField()),
        migrations.RunSQL(_QUEUE, "DROP FUNCTION traces_app_queue_retitled(uuid, text)"),
    ]
