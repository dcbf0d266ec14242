"""Views and columns of runs and failed calls are theirs alone, no longer those of all messages and tool calls, too."""

from django.db import migrations

LISTS = {"messages_app.message": "role=assistant", "traces_app.toolcall": "status=error"}
VIEWS = """
    UPDATE messages_app_savedview SET list_name = '{model}?{said}'
    WHERE list_name = '{model}' AND '&' || query || '&' LIKE '%&{said}&%'
    """
COLUMNS = """
    INSERT INTO messages_app_listcolumns (owner_id, list_name, names)
    SELECT owner_id, '{model}?{said}', names FROM messages_app_listcolumns WHERE list_name = '{model}'
    ON CONFLICT DO NOTHING
    """


class Migration(migrations.Migration):
    dependencies = [("messages_app", "0019_purged_periods")]

    operations = [
        migrations.RunSQL(statement.format(model=model, said=said), migrations.RunSQL.noop)
        for model, said in LISTS.items()
        for statement in (VIEWS, COLUMNS)
    ]
