"""PostgreSQL tells whoever listens when a project or a key changes: see access_app.db.statements.memory.

Not when its last use is noted, which happens every minute.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations

CREATE = """
    CREATE FUNCTION access_app_changed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NOTIFY access_app_changed;
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER access_app_changed
        AFTER UPDATE OF project_id, name, digest, scopes, expires_at, revoked_at OR DELETE OR TRUNCATE
        ON access_app_apikey EXECUTE FUNCTION access_app_changed();
    CREATE TRIGGER access_app_changed
        AFTER UPDATE OR DELETE OR TRUNCATE ON access_app_project EXECUTE FUNCTION access_app_changed();
    """
DROP = """
    DROP TRIGGER access_app_changed ON access_app_project;
    DROP TRIGGER access_app_changed ON access_app_apikey;
    DROP FUNCTION access_app_changed();
    """


class Migration(migrations.Migration):
    dependencies: ClassVar = [("access_app", "0001_initial")]
    operations: ClassVar = [migrations.RunSQL(CREATE, DROP)]
