"""The cost of messages and sessions: sums that writes keep up to date."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0003_project_sampling"),
        ("messages_app", "0008_message_root_tool"),
    ]

    operations = [
        migrations.AddField(
            model_name="message",
            name="cost",
            field=models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True, verbose_name="cost"),
        ),
        migrations.AddField(
            model_name="message",
            name="unpriced_count",
            field=models.IntegerField(db_default=0, default=0, verbose_name="steps without a cost"),
        ),
        migrations.AddField(
            model_name="session",
            name="cost_sum",
            field=models.DecimalField(db_default=0, decimal_places=10, default=0, max_digits=20),
        ),
        migrations.AddField(
            model_name="session",
            name="priced_count",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="session",
            name="unpriced_count",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="steps without a cost"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("cost__isnull", False)), fields=["project", "cost"], name="message_cost"
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="cost",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(models.When(priced_count__gt=0, then="cost_sum")),
                output_field=models.DecimalField(decimal_places=10, max_digits=20, null=True),
                verbose_name="cost",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("cost__isnull", False)), fields=["project", "cost"], name="session_cost"
            ),
        ),
    ]
