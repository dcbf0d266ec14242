"""An archive is of a period of any length. Its first day stays in `month`, which the version before reads and writes."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0024_masking_runs")]

    operations = [
        migrations.AddField("Archive", "period", models.TextField(default="", db_default="")),
        migrations.RunSQL("UPDATE traces_app_archive SET period = to_char(month, 'YYYY-MM')", migrations.RunSQL.noop),
        migrations.RemoveConstraint("Archive", "archive_of_month"),
        migrations.AddConstraint(
            "Archive", models.UniqueConstraint(fields=["project", "month", "period", "url"], name="archive_of_period")
        ),
    ]
