"""Whether a project encrypts was whether it has a data key; now it can be turned off."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0014_project_key"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="encryption",
            field=models.CharField(
                choices=[("off", "off"), ("on", "on"), ("ending", "being turned off")],
                db_default="off",
                default="off",
                editable=False,
                max_length=8,
                verbose_name="encryption at rest",
            ),
        ),
        migrations.RunSQL(
            "UPDATE access_app_project SET encryption = 'on' WHERE id IN (SELECT project_id FROM access_app_projectkey)",
            migrations.RunSQL.noop,
        ),
    ]
