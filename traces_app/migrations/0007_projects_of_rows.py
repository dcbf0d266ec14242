"""Steps, results, contexts, patterns of errors, seals, snapshots and the sessions of archives carry their project.

Fills every row, of each table in transactions of its own: see messages_app.sql.project_column. The version before cannot write
without the column, seals apart.
"""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from messages_app.sql.project_column import add_project

OF_MESSAGE = "SELECT message.project_id FROM messages_app_message AS message WHERE message.id = row_.message_id"
OF_CALL = "SELECT call.project_id FROM traces_app_toolcall AS call WHERE call.id = row_.id"
OF_SESSION = "SELECT session.project_id FROM messages_app_session AS session WHERE session.id = row_.session_id"
OF_BATCH = "SELECT batch.project_id FROM traces_app_sealbatch AS batch WHERE batch.id = row_.batch"
OF_ARCHIVE = "SELECT archive.project_id FROM traces_app_archive AS archive WHERE archive.id = row_.archive_id"


def project(**more: Any) -> Any:
    return models.ForeignKey(
        db_constraint=False,
        db_index=False,
        on_delete=django.db.models.deletion.DO_NOTHING,
        related_name="+",
        to="access_app.project",
        **more,
    )


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("access_app", "0001_initial"),
        ("messages_app", "0004_projects_of_rows"),
        ("traces_app", "0006_error_patterns"),
    ]

    operations = [
        add_project("agentstep", "traces_app_agentstep", OF_MESSAGE, project(verbose_name="project")),
        add_project("toolresult", "traces_app_toolresult", OF_CALL, project(verbose_name="project")),
        add_project("context", "traces_app_context", OF_SESSION, project(verbose_name="project")),
        add_project("errorpattern", "traces_app_errorpattern", OF_MESSAGE, project()),
        add_project("messageseal", "traces_app_messageseal", OF_BATCH, project(null=True)),
        add_project("archivedsession", "traces_app_archivedsession", OF_ARCHIVE, project()),
        add_project("snapshotsums", "traces_app_snapshotsums", OF_SESSION, project()),
        add_project("snapshot", "traces_app_snapshot", OF_SESSION, project()),
        add_project("snapshotpart", "traces_app_snapshotpart", OF_SESSION, project()),
    ]
