"""Masking rules of projects."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0008_audit_of_seals"),
    ]

    operations = [
        migrations.CreateModel(
            name="MaskingRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.SlugField(
                        help_text="Name of the rule in the receipts of traces.", max_length=64, verbose_name="name"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("preset", "preset: email, phone, card, iban or chinese_id"),
                            ("key", "key: the name of a value, in all spellings"),
                            ("pattern", "pattern: a regular expression"),
                            ("path", "path: a place in JSON, such as args.customer.name"),
                            ("function", "function: one that the settings allow"),
                        ],
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                ("value", models.CharField(max_length=500, verbose_name="value")),
                ("enabled", models.BooleanField(db_default=True, default=True, verbose_name="enabled")),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="masking_rules",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "verbose_name": "masking rule",
                "verbose_name_plural": "masking rules",
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "name"),
                        name="masking_rule_of_a_name",
                        violation_error_message="The project has a masking rule with this name already.",
                    )
                ],
            },
        ),
    ]
