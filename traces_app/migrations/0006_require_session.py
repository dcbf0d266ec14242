"""A function that fails the transaction of a write whose session was deleted or purged meanwhile.

Ingest sends all statements of a batch at once, as one transaction that is committed by the time of the answer. Only an
error raised by the server can undo it.
"""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0005_model_errors")]

    operations = [
        migrations.RunSQL(
            sql="""
                CREATE FUNCTION traces_app_require_session(updated bigint) RETURNS void LANGUAGE plpgsql AS $$
                BEGIN
                    IF updated = 0 THEN
                        RAISE EXCEPTION 'The session is deleted or gone.' USING ERRCODE = 'no_data_found';
                    END IF;
                END $$
            """,
            reverse_sql="DROP FUNCTION traces_app_require_session(bigint)",
        )
    ]
