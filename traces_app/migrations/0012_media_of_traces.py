"""Media among the deliveries of a trace."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("traces_app", "0011_shipped_prices"),
    ]

    operations = [
        migrations.AlterField(
            model_name="span",
            name="kind",
            field=models.CharField(
                choices=[("span", "span"), ("log", "log record"), ("media", "media")],
                default="span",
                max_length=8,
                verbose_name="kind",
            ),
        ),
    ]
