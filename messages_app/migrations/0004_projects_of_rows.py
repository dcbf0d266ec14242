"""References, and the marks of what exists and of what was purged, carry their project.

Of keys and tombstones of what was purged before, the project is not known any more: 0. Fills every row, of each table in
transactions of its own: see messages_app.sql.project_column. The version before cannot write without the column.
"""

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.project_column import add_project

OF_MESSAGE = "SELECT message.project_id FROM messages_app_message AS message WHERE message.id = row_.message_id"


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("access_app", "0001_initial"), ("messages_app", "0003_error_patterns")]

    operations = [
        add_project(
            "reference",
            "messages_app_reference",
            OF_MESSAGE,
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="access_app.project",
                verbose_name="project",
            ),
        ),
        add_project(
            "messagekey",
            "messages_app_messagekey",
            OF_MESSAGE,
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="access_app.project",
            ),
        ),
        add_project(
            "sessiontombstone",
            "messages_app_sessiontombstone",
            "NULL::bigint",
            models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="access_app.project",
            ),
        ),
    ]
