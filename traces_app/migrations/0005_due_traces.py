import django.db.models.deletion
from django.db import migrations, models

# Those that were due are due at once.
KEEP = """
    INSERT INTO traces_app_duetrace (project_id, trace_id, version, made_version, is_over, due_at, attempts, used_at, digests)
    SELECT project_id, trace_id, extract(epoch FROM now()) * 1000000, extract(epoch FROM now()) * 1000000 - 1, is_over, now(), 0, used_at, ''
    FROM traces_app_largetrace WHERE due_at IS NOT NULL
    """


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0001_initial"),
        ("traces_app", "0004_large_traces"),
    ]

    operations = [
        migrations.CreateModel(
            name="DueTrace",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "project_id", "trace_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("trace_id", models.UUIDField()),
                ("version", models.BigIntegerField()),
                ("made_version", models.BigIntegerField(default=0)),
                ("is_over", models.BooleanField(default=False)),
                ("due_at", models.DateTimeField(null=True)),
                ("rests_until", models.DateTimeField(null=True)),
                ("taken_until", models.DateTimeField(null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("used_at", models.DateTimeField()),
                ("digests", models.BinaryField(default=b"")),
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
            options={"indexes": [models.Index(fields=["due_at"], name="due_trace_time")]},
        ),
        migrations.RunSQL(KEEP, migrations.RunSQL.noop),
        migrations.DeleteModel("LargeTrace"),
        migrations.AddIndex(
            "Span",
            models.Index(condition=models.Q(("kind", "joined")), fields=["project", "trace_id"], name="span_joined"),
        ),
    ]
