"""Roles of people in projects. Changes end live connections that they no longer allow, as those of keys do."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import access_app.people

CREATE = """
    CREATE TRIGGER access_app_changed
        AFTER UPDATE OR DELETE OR TRUNCATE ON access_app_membership EXECUTE FUNCTION access_app_changed();
    """
DROP = "DROP TRIGGER access_app_changed ON access_app_membership"


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0003_project_sampling"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("analyst", "analyst: reads"),
                            ("editor", "editor: also writes, deletes, restores and scores"),
                            ("owner", "owner: also purges, and manages members, API keys and settings"),
                        ],
                        max_length=16,
                        verbose_name="role",
                    ),
                ),
                (
                    "group",
                    access_app.people.PersonKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="auth.group",
                        verbose_name="group",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "user",
                    access_app.people.PersonKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "membership",
                "verbose_name_plural": "memberships",
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("group__isnull", False), ("user", None)),
                            models.Q(("group", None), ("user__isnull", False)),
                            _connector="OR",
                        ),
                        name="membership_of_a_user_or_a_group",
                        violation_error_message="Choose either a user or a group.",
                    ),
                    models.UniqueConstraint(
                        fields=("project", "user"),
                        name="one_membership_for_each_user",
                        violation_error_message="This user has a role in the project already.",
                    ),
                    models.UniqueConstraint(
                        fields=("project", "group"),
                        name="one_membership_for_each_group",
                        violation_error_message="This group has a role in the project already.",
                    ),
                ],
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
