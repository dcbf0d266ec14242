"""The stored patterns of errors. The table begins empty and takes no time: its reader of the log fills it, and makes the partitions
of the periods that exist. Until then errors are grouped as before.
"""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    dependencies = [("messages_app", "0003_error_patterns"), ("traces_app", "0005_due_traces")]

    operations = [
        CreatePartitionedModel(
            name="ErrorPattern",
            fields=[
                (
                    "call",
                    models.OneToOneField(
                        db_column="id",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="error_pattern",
                        serialize=False,
                        to="traces_app.toolcall",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="messages_app.message",
                    ),
                ),
                ("pattern", models.TextField()),
            ],
            options={
                "indexes": [models.Index(fields=["message"], name="error_pattern_message")],
            },
        ),
    ]
