"""Indexes to search the audit log by object, actor and time."""

import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0010_viewers"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(
                condition=models.Q(("object_id", ""), _negated=True),
                fields=["object_id", "-id"],
                name="audit_of_object",
            ),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["actor_name", "-id"], name="audit_of_actor"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=django.contrib.postgres.indexes.BrinIndex(fields=["time"], name="audit_of_time"),
        ),
    ]
