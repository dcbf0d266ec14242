"""Fields of models whose values are encrypted when an instance is saved, in projects that are encrypted.

Their columns are those of Django's fields. `update()` and `bulk_update()` save no instance: with encrypted columns use save().
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.db import models

from .columns import ENCRYPTED, Column, Form
from .envelope import row_bytes
from .keys import is_used, key_of


class EncryptedText(models.TextField):  # type: ignore[type-arg]  # not generic at run time
    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        return encrypted(self, model_instance, super().pre_save(model_instance, add))

    def deconstruct(self) -> Any:
        # The column is the same, so migrations need not know.
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


class EncryptedJSON(models.JSONField):
    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        return encrypted(self, model_instance, super().pre_save(model_instance, add))

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


def encrypted(field: models.Field[Any, Any], row: models.Model, value: Any) -> Any:
    """Return the value of a column as it is stored: of a project that is encrypted, encrypted. Raise Locked."""
    if hasattr(value, "resolve_expression") or not is_used():
        return value
    # The models that are saved as instances have it.
    return sealed_value(ENCRYPTED[row._meta.db_table][str(field.column)], row.pk, value, row.project_id)  # type: ignore[attr-defined]


def sealed_value(column: Column, row_id: UUID, value: Any, project_id: int) -> Any:
    """Return a value, text or decoded JSON, as the column stores it in a project. Raise Locked."""
    key = key_of(project_id) if value else None
    if key is None:
        return value
    text = value if column.form is Form.TEXT else msgspec.json.encode(value).decode()
    stored = key.sealed(column, row_bytes(row_id), text)
    return stored if column.form is Form.TEXT else msgspec.json.decode(stored)
