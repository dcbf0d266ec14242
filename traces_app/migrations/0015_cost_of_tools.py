"""Give the periods of tools the cost of their calls; the next roll-up stores all of them again."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0014_search_index")]

    operations = [
        # Periods without the cost would be read as periods whose cost is unknown.
        migrations.RunSQL("TRUNCATE traces_app_toolperiod; DELETE FROM traces_app_toolrollup", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="toolperiod",
            name="cost",
            field=models.DecimalField(decimal_places=10, max_digits=20, null=True),
        ),
        migrations.AddField(
            model_name="toolperiod",
            name="priced_calls",
            field=models.BigIntegerField(default=0),
            preserve_default=False,
        ),
    ]
