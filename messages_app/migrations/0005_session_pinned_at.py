"""When a session was pinned."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0004_session_last_event"),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="pinned_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="pinned at"),
        ),
    ]
