"""What people decided about groups of errors."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import access_app.people


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0001_initial"),
        ("traces_app", "0007_projects_of_rows"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ErrorGroupState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("group", models.CharField(max_length=32)),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "open"), ("resolved", "resolved"), ("ignored", "ignored")], max_length=8
                    ),
                ),
                ("note", models.TextField(blank=True, default="")),
                ("at", models.DateTimeField()),
                (
                    "by",
                    access_app.people.PersonKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
            ],
            options={
                "verbose_name": "state of an error",
                "verbose_name_plural": "states of errors",
                "constraints": [models.UniqueConstraint(fields=("project", "group"), name="state_of_error_group")],
            },
        ),
    ]
