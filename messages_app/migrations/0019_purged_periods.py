"""What was dropped is a period of any length. The table keeps its name, and a month may lack its end, for the version before."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messages_app", "0018_known_interruptions")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("PurgedMonth", "PurgedPeriod"),
                migrations.AlterModelTable("PurgedPeriod", "messages_app_purgedmonth"),
                migrations.RenameField("PurgedPeriod", "month", "begin"),
                migrations.AlterField(
                    "PurgedPeriod",
                    "begin",
                    models.DateField(primary_key=True, serialize=False, db_column="month"),
                ),
            ]
        ),
        migrations.AddField("PurgedPeriod", "end", models.DateField(null=True)),
    ]
