"""Keys to the users and groups of the project, who may be in another database than the traces (TRACESITE_DATABASE).

PostgreSQL then checks no such key, and Django cannot remove what belongs to a user together with the user: `forget_gone` does it later.
Queries cannot join users, so rows are read `with_people`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.db import models

from access_app.db import PEOPLE_ARE_HERE

Rows = TypeVar("Rows", bound=models.QuerySet[Any, Any])

if TYPE_CHECKING:
    PersonKey = models.ForeignKey
else:

    class PersonKey(models.ForeignKey):
        """A key to a user or a group. It is the same in migrations, wherever they are."""

        def __init__(self, to: Any, on_delete: Any, **options: Any) -> None:
            self.when_gone = on_delete
            if not PEOPLE_ARE_HERE:
                on_delete, options = models.DO_NOTHING, {**options, "db_constraint": False}
            super().__init__(to, on_delete, **options)

        def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
            name, path, arguments, options = super().deconstruct()
            options.pop("db_constraint", None)
            return name, path, arguments, {**options, "on_delete": self.when_gone}


def with_people(rows: Rows, *keys: str) -> Rows:
    """Read rows together with the users and groups that these keys name: in the same query, or with one more each."""
    return rows.select_related(*keys) if PEOPLE_ARE_HERE else rows.prefetch_related(*keys)


def gone(rows: models.QuerySet[Any, Any], key: str) -> set[Any]:
    """Return the primary keys of users or groups that the rows name by this key, and that there are no longer."""
    # By the base manager: a project's default one may leave out users who are not gone.
    people: Any = rows.model._meta.get_field(key).related_model
    named = set(rows.exclude(**{key: None}).order_by().values_list(key, flat=True).distinct())
    return named.difference(people._base_manager.filter(pk__in=named).values_list("pk", flat=True))


def forget_gone() -> int:
    """Remove or change the rows that name users and groups who are gone, as one database would have done. Return their number."""
    forgotten = 0
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, PersonKey):
                rows = model._default_manager.all()
                of_gone = rows.filter(**{f"{field.name}__in": gone(rows, field.name)})
                is_kept = vars(field)["when_gone"] is models.SET_NULL
                forgotten += of_gone.update(**{field.name: None}) if is_kept else of_gone.delete()[0]
    return forgotten
