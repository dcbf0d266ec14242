"""Seals in the audit log."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("access_app", "0007_two_factor"),
    ]

    operations = [
        migrations.AlterField(
            model_name="auditentry",
            name="action",
            field=models.CharField(
                choices=[
                    ("list", "list"),
                    ("read", "read"),
                    ("search", "search"),
                    ("export", "export"),
                    ("create", "create"),
                    ("change", "change"),
                    ("delete", "delete"),
                    ("restore", "restore"),
                    ("purge", "purge"),
                    ("import", "import"),
                    ("login", "login"),
                    ("logout", "logout"),
                    ("key_use", "use of a key"),
                    ("key_create", "creation of a key"),
                    ("key_rotate", "rotation of a key"),
                    ("key_revoke", "revocation of a key"),
                    ("role_grant", "grant of a role"),
                    ("role_revoke", "revocation of a role"),
                    ("audit_purge", "purge of the audit log"),
                    ("seal", "sealing"),
                ],
                max_length=16,
                verbose_name="action",
            ),
        ),
    ]
