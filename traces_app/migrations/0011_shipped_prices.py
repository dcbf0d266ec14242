"""The prices that Tracesite ships, if there are none yet; later ones are imported by import_prices."""

import msgspec
from django.db import migrations

from traces_app.maintenance.prices import shipped_prices


def fill(apps, schema_editor):
    model = apps.get_model("traces_app", "ModelPrice")
    prices = model.objects.using(schema_editor.connection.alias)
    if not prices.exists():
        known = {field.name for field in model._meta.get_fields()} - {"project"}
        rows = [msgspec.structs.asdict(row) for row in shipped_prices()]
        prices.bulk_create(model(**{name: value for name, value in row.items() if name in known}) for row in rows)


class Migration(migrations.Migration):
    dependencies = [
        ("traces_app", "0010_model_prices"),
    ]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
