"""The search index, and the queue of what it lacks: at first everything. Segments are partitioned by month like messages."""

import django.db.models.functions.datetime
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0001_initial"),
        ("traces_app", "0013_tool_periods"),
    ]

    operations = [
        migrations.CreateModel(
            name="UnindexedMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.UUIDField()),
                ("queued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"indexes": [models.Index(fields=["message_id"], name="unindexed_message")]},
        ),
        CreatePartitionedModel(
            name="SearchSegment",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("rows", models.IntegerField()),
                ("first_message", models.UUIDField()),
                ("last_message", models.UUIDField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        CreatePartitionedModel(
            name="SearchRows",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id", "chunk", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("segment_id", models.UUIDField(db_column="id")),
                ("chunk", models.IntegerField()),
                ("rows", models.BinaryField()),
            ],
        ),
        CreatePartitionedModel(
            name="SearchPosting",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id", "gram", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("segment_id", models.UUIDField(db_column="id")),
                ("gram", models.BigIntegerField()),
                ("rows", models.BinaryField()),
            ],
        ),
        migrations.RunSQL(
            "INSERT INTO traces_app_unindexedmessage (message_id) SELECT id FROM messages_app_message ORDER BY id",
            migrations.RunSQL.noop,
        ),
    ]
