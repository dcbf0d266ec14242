"""Chains of which a tracker named the root tool are found by an index of theirs; it is empty where there are none."""

import django.db.models.fields.json
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0007_session_status"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                django.db.models.fields.json.KeyTextTransform("root_tool_id", "metadata"),
                condition=models.Q(("metadata__has_key", "root_tool_id")),
                name="message_root_tool",
            ),
        ),
    ]
