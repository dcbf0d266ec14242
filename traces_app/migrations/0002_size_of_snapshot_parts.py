"""Parts of contexts have the size and the levels of what they stand for; NULL for parts that are stored already.

A database may have the columns, because this migration was the 0026th before. Adding them does not rewrite the table.
"""

from django.db import migrations, models

ADD = """
    ALTER TABLE traces_app_snapshotpart
        ADD COLUMN IF NOT EXISTS assembled_size bigint,
        ADD COLUMN IF NOT EXISTS assembled_depth bigint
    """
DROP = """
    ALTER TABLE traces_app_snapshotpart
        DROP COLUMN assembled_depth,
        DROP COLUMN assembled_size
    """


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0001_initial")]

    operations = [
        migrations.RunSQL(
            ADD,
            DROP,
            state_operations=[
                migrations.AddField("SnapshotPart", "assembled_size", models.BigIntegerField(null=True)),
                migrations.AddField("SnapshotPart", "assembled_depth", models.BigIntegerField(null=True)),
            ],
        ),
    ]
