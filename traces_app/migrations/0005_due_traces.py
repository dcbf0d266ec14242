from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0001_initial"),
        ("traces_app", "0004_large_traces"),
    ]

    operations = [
        migrations.RenameModel("LargeTrace", "DueTrace"),
        migrations.RemoveConstraint("DueTrace", "large_trace"),
        migrations.AddConstraint("DueTrace", models.UniqueConstraint(fields=("project", "trace_id"), name="due_trace")),
        migrations.AddField("DueTrace", "made_version", models.BigIntegerField(default=0)),
        migrations.AddField("DueTrace", "taken_until", models.DateTimeField(null=True)),
        migrations.AddField("DueTrace", "attempts", models.PositiveSmallIntegerField(default=0)),
        migrations.AddField("DueTrace", "digests", models.BinaryField(default=b"")),
        migrations.AlterField("DueTrace", "rests_until", models.DateTimeField(null=True)),
        migrations.AddIndex("DueTrace", models.Index(fields=["due_at"], name="due_trace_time")),
        migrations.RunSQL(
            "UPDATE traces_app_duetrace SET made_version = version WHERE due_at IS NULL",
            migrations.RunSQL.noop,
        ),
        migrations.AddIndex(
            "Span",
            models.Index(condition=models.Q(("kind", "joined")), fields=["project", "trace_id"], name="span_joined"),
        ),
    ]
