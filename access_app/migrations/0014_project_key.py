"""Data keys of projects."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0013_masked_keys"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProjectKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.PositiveIntegerField()),
                ("key_id", models.CharField(max_length=16, unique=True)),
                ("wrapped", models.BinaryField(null=True)),
                ("master_id", models.CharField(max_length=8)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("destroyed_at", models.DateTimeField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="data_keys",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "ordering": ["project", "version"],
                "constraints": [models.UniqueConstraint(fields=("project", "version"), name="data_key_of_a_version")],
            },
        ),
    ]
