"""The trash is read in the order of deletion; both indexes hold deleted rows only."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0013_message_system"),
    ]

    operations = [
        migrations.AddIndex(
            model_name=model,
            index=models.Index(
                fields=["deleted_at", "id"],
                condition=models.Q(("deleted_at__isnull", False)),
                name=f"{model}_trash_order",
            ),
        )
        for model in ("session", "message")
    ]
