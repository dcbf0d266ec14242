"""The queue of messages that are to be sealed."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0014_trash_order"),
    ]

    operations = [
        migrations.CreateModel(
            name="SealMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.UUIDField()),
                ("token", models.BinaryField()),
                ("queued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["message_id"], name="seal_mark_message")],
            },
        ),
    ]
