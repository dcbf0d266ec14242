"""One log of changes in the place of the marks of hours and of seals; what waits in these is taken over."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Cast, Now

TAKE_OVER = """
    INSERT INTO messages_app_change (project_id, message_id, kind, token, at)
    SELECT coalesce(message.project_id, 0), mark.message_id, 'seal', mark.token, mark.queued_at
    FROM messages_app_sealmark AS mark LEFT JOIN messages_app_message AS message ON message.id = mark.message_id
    ORDER BY mark.id;
    INSERT INTO messages_app_change (project_id, message_id, kind)
    SELECT DISTINCT ON (message.project_id, hour.begin) message.project_id, message.id, 'figures'
    FROM messages_app_changedhour AS hour JOIN messages_app_message AS message
    ON message.project_id = hour.project_id AND date_trunc('hour', message.created_at, 'UTC') = hour.begin
    """


class Migration(migrations.Migration):
    dependencies = [("access_app", "0001_initial"), ("messages_app", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Change",
            fields=[
                ("position", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "transaction",
                    models.BigIntegerField(
                        db_default=Cast(
                            Cast(models.Func(function="pg_current_xact_id"), models.TextField()),
                            models.BigIntegerField(),
                        )
                    ),
                ),
                ("at", models.DateTimeField(db_default=Now())),
                ("message_id", models.UUIDField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("content", "Content"),
                            ("figures", "Figures"),
                            ("index", "Index"),
                            ("vector", "Vector"),
                            ("seal", "Seal"),
                        ],
                        max_length=10,
                    ),
                ),
                ("token", models.BinaryField(db_default=b"")),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["transaction", "position"], name="change_order"),
                    models.Index(fields=["message_id"], name="change_message"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ChangeReader",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("transaction", models.BigIntegerField()),
                ("position", models.BigIntegerField()),
                ("system", models.BigIntegerField()),
                ("state", models.JSONField(default=dict)),
            ],
        ),
        migrations.RunSQL(TAKE_OVER, migrations.RunSQL.noop),
        migrations.DeleteModel(name="ChangedHour"),
        migrations.DeleteModel(name="SealMark"),
    ]
