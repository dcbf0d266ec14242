"""The vectors of runs, partitioned by month like messages, and the queue of what they lack, which the first job fills."""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0001_initial"),
        ("messages_app", "0001_initial"),
        ("traces_app", "0015_cost_of_tools"),
    ]

    operations = [
        migrations.CreateModel(
            name="UnvectoredMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.UUIDField()),
            ],
        ),
        migrations.CreateModel(
            name="EmbedderInUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField()),
                ("width", models.IntegerField()),
            ],
        ),
        CreatePartitionedModel(
            name="RunVector",
            fields=[
                (
                    "message",
                    models.OneToOneField(
                        db_column="id",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="vector",
                        serialize=False,
                        to="messages_app.message",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
                ("embedder_id", models.IntegerField()),
                ("vector", models.BinaryField()),
            ],
            options={"indexes": [models.Index(fields=["project", "message"], name="vector_project_page")]},
        ),
        # Whole numbers hardly compress; a vector of 1,000 places stays in its row.
        migrations.RunSQL("ALTER TABLE traces_app_runvector ALTER vector SET STORAGE MAIN", migrations.RunSQL.noop),
    ]
