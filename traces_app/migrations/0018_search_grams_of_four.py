"""Grams of four units, and marks of failed calls: the search index is built again."""

from django.db import migrations

_AGAIN = """
TRUNCATE traces_app_searchsegment, traces_app_searchrows, traces_app_searchposting, traces_app_unindexedmessage;
INSERT INTO traces_app_unindexedmessage (message_id) SELECT id FROM messages_app_message ORDER BY id
"""


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0017_search_sessions")]

    operations = [migrations.RunSQL(_AGAIN, _AGAIN)]
