"""Networks and a request limit of API keys."""

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import access_app.models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0004_membership"),
    ]

    operations = [
        migrations.CreateModel(
            name="KeyThrottle",
            fields=[
                (
                    "key",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="throttle",
                        serialize=False,
                        to="access_app.apikey",
                    ),
                ),
                ("full_at", models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name="apikey",
            name="allowed_networks",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=43, validators=[access_app.models.check_network]),
                blank=True,
                db_default=[],
                default=list,
                help_text="IP addresses and networks that may use the key, separated by commas: 192.0.2.7, 10.0.0.0/8. Empty: all.",
                size=None,
                verbose_name="allowed networks",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="requests_per_minute",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests beyond this are answered with 429. Empty: no limit.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(1000000),
                ],
                verbose_name="requests per minute",
            ),
        ),
    ]
