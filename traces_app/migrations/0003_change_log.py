"""The log of changes (messages_app) in the place of the queues of the search and of the vectors; what waits in these is taken over."""

from django.db import migrations

# A row of the search index has a version, which grows: those of the log are above those of the queue.
TAKE_OVER = """
    SELECT setval(
        'messages_app_change_position_seq',
        greatest(
            (SELECT last_value FROM messages_app_change_position_seq),
            (SELECT last_value FROM traces_app_unindexedmessage_id_seq)
        )
    );
    INSERT INTO messages_app_change (project_id, message_id, kind, at)
    SELECT message.project_id, queued.message_id, 'content', queued.queued_at
    FROM traces_app_unindexedmessage AS queued JOIN messages_app_message AS message ON message.id = queued.message_id
    ORDER BY queued.id;
    INSERT INTO messages_app_change (project_id, message_id, kind)
    SELECT message.project_id, queued.message_id, 'vector'
    FROM traces_app_unvectoredmessage AS queued JOIN messages_app_message AS message ON message.id = queued.message_id
    ORDER BY queued.id
    """
# A new title is a text of each message of the session.
LOG_RETITLED = """
    CREATE FUNCTION traces_app_log_retitled(session uuid, new_title text) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        old_title text;
    BEGIN
        SELECT title INTO old_title FROM messages_app_session WHERE id = session FOR NO KEY UPDATE;
        IF old_title <> new_title THEN
            INSERT INTO messages_app_change (project_id, message_id, kind)
            SELECT project_id, id, 'index' FROM messages_app_message WHERE session_id = session ORDER BY id;
        END IF;
    END $$
    """
LOG_NOTHING = "DROP FUNCTION traces_app_log_retitled(uuid, text)"


class Migration(migrations.Migration):
    dependencies = [("messages_app", "0002_change_log"), ("traces_app", "0002_size_of_snapshot_parts")]

    operations = [
        migrations.RunSQL(TAKE_OVER, migrations.RunSQL.noop),
        migrations.RunSQL(LOG_RETITLED, LOG_NOTHING),
        migrations.RunSQL("DROP FUNCTION traces_app_queue_retitled(uuid, text)", migrations.RunSQL.noop),
        migrations.DeleteModel(name="UnindexedMessage"),
        migrations.DeleteModel(name="UnvectoredMessage"),
    ]
