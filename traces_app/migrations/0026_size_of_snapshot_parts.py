"""Parts of contexts have the size and the levels of what they stand for. Null for those that are stored: the table is not rewritten."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0025_archived_periods")]

    operations = [
        migrations.AddField("SnapshotPart", "assembled_size", models.BigIntegerField(null=True)),
        migrations.AddField("SnapshotPart", "assembled_depth", models.BigIntegerField(null=True)),
    ]
