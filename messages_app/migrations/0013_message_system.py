"""An index for the system messages."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("access_app", "0003_project_sampling"), ("messages_app", "0012_list_columns")]

    operations = [
        migrations.AddIndex(
            model_name="message",
            index=models.Index(condition=models.Q(("role", "system")), fields=["project", "id"], name="message_system"),
        ),
    ]
