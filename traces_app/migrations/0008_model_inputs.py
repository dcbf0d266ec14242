"""What the models of steps were asked: references of steps, and entries that several runs of a session share."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("messages_app", "0008_message_root_tool"),
        ("traces_app", "0007_spans"),
    ]

    operations = [
        migrations.AddField(
            model_name="agentstep",
            name="input_ref",
            field=models.TextField(blank=True, default="", verbose_name="model input"),
        ),
        migrations.AddField(
            model_name="agentstep",
            name="time_to_first_token_ms",
            field=models.BigIntegerField(blank=True, null=True, verbose_name="time to first token (ms)"),
        ),
        migrations.AlterField(
            model_name="context",
            name="message",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="contexts",
                to="messages_app.message",
                verbose_name="message",
            ),
        ),
        migrations.AddIndex(
            model_name="context",
            index=models.Index(condition=models.Q(("kind", "entry")), fields=["session"], name="context_entries"),
        ),
    ]
