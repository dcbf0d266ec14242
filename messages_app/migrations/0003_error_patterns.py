"""A kind of changes by which patterns of errors are stored again. Only Django's state changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messages_app", "0002_change_log")]

    operations = [
        migrations.AlterField(
            model_name="change",
            name="kind",
            field=models.CharField(
                choices=[
                    ("content", "Content"),
                    ("figures", "Figures"),
                    ("index", "Index"),
                    ("vector", "Vector"),
                    ("pattern", "Pattern"),
                    ("seal", "Seal"),
                ],
                max_length=10,
            ),
        ),
    ]
