"""Seals of messages, partitioned by month like them, in batches that are a chain."""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.partitions import CreatePartitionedModel


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0008_audit_of_seals"),
        ("traces_app", "0018_search_grams_of_four"),
    ]

    operations = [
        migrations.CreateModel(
            name="SealLayout",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.BinaryField(unique=True)),
                ("columns", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="SealBatch",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("kind", models.CharField(choices=[("seals", "Seals"), ("month", "Month")], max_length=5)),
                ("month", models.DateField()),
                ("sealed_at", models.DateTimeField()),
                ("key_id", models.CharField(max_length=8)),
                ("count", models.IntegerField()),
                ("members", models.BinaryField()),
                ("digest", models.BinaryField()),
                ("mac", models.BinaryField()),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                    ),
                ),
                (
                    "layout",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="traces_app.seallayout",
                    ),
                ),
            ],
        ),
        CreatePartitionedModel(
            name="MessageSeal",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "message_id", "batch", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("message_id", models.UUIDField(db_column="id")),
                ("batch", models.BigIntegerField()),
                ("state", models.CharField(choices=[("s", "Sealed"), ("o", "Open"), ("r", "Removed")], max_length=1)),
                ("kinds", models.IntegerField()),
                ("parts", models.BinaryField()),
                ("nonces", models.BinaryField()),
                ("mac", models.BinaryField()),
            ],
        ),
        migrations.AddIndex(
            model_name="sealbatch",
            index=models.Index(fields=["month", "id"], name="seal_batch_month"),
        ),
    ]
