from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0012_retention"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="reads_masked",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="The key reads what a viewer reads, by the masking rules of the project. It can only read.",
                verbose_name="reads masked values",
            ),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(("reads_masked", False), ("scopes", ["read"]), _connector="OR"),
                name="masked_key_only_reads",
                violation_error_message="A key that reads masked values can have no other scope than read.",
            ),
        ),
    ]
