"""Counts the model errors of existing messages. Reads the steps once; only messages that have such a step are written."""

from django.db import migrations

COUNT = """
    UPDATE messages_app_message AS message SET model_error_count = found.number
    FROM (
        SELECT message_id, count(*) AS number FROM traces_app_agentstep
        WHERE metadata ? 'error' AND metadata -> 'error' NOT IN ('null', '""', 'false', '0', '{}', '[]')
        GROUP BY message_id
    ) AS found
    WHERE message.id = found.message_id
    """


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0006_session_lifecycle"),
        ("traces_app", "0004_contexts"),
    ]

    operations = [migrations.RunSQL(COUNT, migrations.RunSQL.noop)]
