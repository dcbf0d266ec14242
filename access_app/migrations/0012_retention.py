"""How long projects keep their data."""

import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models

import access_app.retention


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0011_audit_indexes"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="keep_pinned",
            field=models.BooleanField(db_default=False, default=False, verbose_name="keep pinned sessions"),
        ),
        migrations.AddField(
            model_name="project",
            name="keep_scores",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=200, validators=[access_app.retention.check_kept_score]),
                blank=True,
                db_default=[],
                default=list,
                help_text="Sessions with such a score, also of one of their messages or calls, are kept: helpful, rating>=4, quality<=0.3. Separated by commas; yes counts as 1, no as 0.",
                size=50,
                verbose_name="keep sessions with a score",
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="keep_statuses",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(
                    choices=[
                        ("planning", "planning"),
                        ("running", "running"),
                        ("paused", "paused"),
                        ("completed", "completed"),
                        ("error", "error"),
                        ("aborted", "aborted"),
                    ],
                    max_length=16,
                ),
                blank=True,
                db_default=[],
                default=list,
                size=None,
                verbose_name="keep sessions with a status",
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="keep_tags",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=200),
                blank=True,
                db_default=[],
                default=list,
                help_text="Sessions with one of these tags are kept whatever their age. Separated by commas.",
                size=50,
                verbose_name="keep sessions with a tag",
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="retention_days",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Messages that are older are removed for good, in the trash or not. Empty: none is removed by age.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(36500),
                ],
                verbose_name="days of live data",
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="retention_way",
            field=models.CharField(
                choices=[
                    ("exact", "exact: each message on its day"),
                    ("whole", "whole months: up to a month later, at once"),
                ],
                db_default="exact",
                default="exact",
                help_text="Exact: what is too old today is removed today, message by message. Whole months: once all of a month is too old, which takes a moment and returns the space on the disk.",
                max_length=8,
                verbose_name="way of removal",
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="trash_days",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="What was deleted longer ago is removed for good. Empty: TRACESITE_TRASH_DAYS decides.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(36500),
                ],
                verbose_name="days in the trash",
            ),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(("retention_days__gte", 1)), name="retention_of_a_day"
            ),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(condition=models.Q(("trash_days__gte", 1)), name="trash_of_a_day"),
        ),
    ]
