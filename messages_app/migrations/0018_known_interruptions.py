"""Only known reasons of interruptions: migration 0017 copied the beginning of whatever producers had written."""

from django.db import migrations

KNOWN = """
    UPDATE messages_app_session SET last_interruption = 'no_news'
    WHERE last_interruption NOT IN ('', 'process_ended', 'no_news')
    """


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0017_aborted_sessions"),
    ]

    operations = [migrations.RunSQL(KNOWN, migrations.RunSQL.noop)]
