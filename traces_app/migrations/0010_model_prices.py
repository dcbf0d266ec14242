"""The cost of steps, and the prices of models."""

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

# The cost of what was stored before is unknown until it is computed: manage.py recompute_costs.
COUNT_OF_MESSAGES = """
    UPDATE messages_app_message AS message SET unpriced_count = found.number
    FROM (
        SELECT message_id, count(*) AS number FROM traces_app_agentstep
        WHERE model <> '' OR usage NOT IN ('null', '{}')
        GROUP BY message_id
    ) AS found
    WHERE message.id = found.message_id
    """
COUNT_OF_SESSIONS = """
    UPDATE messages_app_session AS session SET unpriced_count = found.number
    FROM (
        SELECT session_id, sum(unpriced_count) AS number FROM messages_app_message
        WHERE unpriced_count > 0 AND deleted_at IS NULL
        GROUP BY session_id
    ) AS found
    WHERE session.id = found.session_id
    """


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0003_project_sampling"),
        ("messages_app", "0009_cost"),
        ("traces_app", "0009_scores"),
    ]

    operations = [
        migrations.AddField(
            model_name="agentstep",
            name="cost",
            field=models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True, verbose_name="cost"),
        ),
        migrations.AddField(
            model_name="agentstep",
            name="said_cost",
            field=models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True),
        ),
        migrations.CreateModel(
            name="ModelPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "model",
                    models.TextField(
                        help_text="A name, or its beginning with a * at the end. Case does not matter.",
                        verbose_name="model",
                    ),
                ),
                (
                    "valid_from",
                    models.DateField(blank=True, help_text="UTC. Empty: always.", null=True, verbose_name="valid from"),
                ),
                (
                    "valid_until",
                    models.DateField(blank=True, help_text="The last day, UTC.", null=True, verbose_name="valid until"),
                ),
                (
                    "input",
                    models.DecimalField(
                        decimal_places=6,
                        max_digits=14,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="input",
                    ),
                ),
                (
                    "cached_input",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=14,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cached input",
                    ),
                ),
                (
                    "cache_write",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=14,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cache write",
                    ),
                ),
                (
                    "output",
                    models.DecimalField(
                        decimal_places=6,
                        max_digits=14,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="output",
                    ),
                ),
                (
                    "reasoning",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=14,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="reasoning",
                    ),
                ),
                (
                    "as_of",
                    models.DateField(help_text="The day on which the published price was read.", verbose_name="as of"),
                ),
                (
                    "source",
                    models.TextField(
                        blank=True, default="", help_text="Where the price was published.", verbose_name="source"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="Empty: for all projects. A price of the project goes before it.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "verbose_name": "model price",
                "verbose_name_plural": "model prices",
                "ordering": ["model", "project", "-valid_from"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "model", "valid_from"), name="price_of_model", nulls_distinct=False
                    )
                ],
            },
        ),
        migrations.RunSQL(COUNT_OF_MESSAGES, migrations.RunSQL.noop),
        migrations.RunSQL(COUNT_OF_SESSIONS, migrations.RunSQL.noop),
    ]
