"""The failed call that decided how a run ended. The reader of errors fills it for all runs with failures, the newest ones first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messages_app", "0004_projects_of_rows")]

    operations = [
        migrations.AddField("message", "decided_by", models.UUIDField(blank=True, null=True)),
    ]
