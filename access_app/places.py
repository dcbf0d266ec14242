"""The directory of projects, in the primary: it names the database of each project's traces. See docs/scaling.md.

It is asked at each request, so that no process goes on where a project was before it moved: one statement, and none in a site with
one database. Each database with traces has copies of the rows of its projects, which keys and joins there lead to. And where a project
is not, a trigger refuses its rows, so that what writes to the wrong database fails and is tried again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from django.apps import apps
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from psycopg import sql

from access_app.conf import conf
from access_app.db import PRIMARY, Database, all_aliases, primary, project_aliases
from access_app.db.conflicts import LocksHeld, retry_locked
from access_app.db.reading import is_of_traces
from access_app.db.statements import read_prepared
from access_app.errors import Conflict, InvalidInput, Unavailable
from access_app.models import Project, ProjectDatabase, ProjectPlace
from access_app.visibility import ProjectScope

_PLACES: Final = """
    SELECT place.project_id, base.alias FROM access_app_projectplace AS place
    JOIN access_app_projectdatabase AS base ON base.id = place.database_id
    """
_ONE: Final = f"{_PLACES} WHERE place.project_id = %s"
_BY_SLUG: Final = "SELECT id FROM access_app_project WHERE slug = %s"
AWAY: Final = "tracesite_project_is_elsewhere"
"""The function that refuses rows of projects that are elsewhere, and the beginning of the names of its triggers."""
WAIT_SECONDS: Final = 60
"""How long to try to be alone with the tables for a moment, while others write."""
_PAUSE_SECONDS: Final = 0.2
MOVING: Final = "tracesite.moving"
"""The setting of a connection that may write them nevertheless, because it moves the project."""


def alias_of(project_id: int) -> str:
    """Return the alias of the database that has the traces of a project."""
    if not project_aliases():
        return PRIMARY
    return next((alias for _project, alias in read_prepared(_ONE, [project_id], primary.connection)), PRIMARY)


def places() -> dict[int, str]:
    """Return the alias of each project whose traces are not in the primary."""
    return dict(read_prepared(_PLACES, [], primary.connection)) if project_aliases() else {}


def id_of(slug: str) -> int | None:
    """Return the id of the project with this slug, if there is one."""
    # PostgreSQL takes no NUL, and no slug has one.
    return (
        None if "\x00" in slug else next((key for (key,) in read_prepared(_BY_SLUG, [slug], primary.connection)), None)
    )


def aliases_of(scope: ProjectScope) -> set[str]:
    """Return the aliases of the databases that have projects of the scope."""
    elsewhere = places()
    if scope.project_ids is None:
        return {PRIMARY, *elsewhere.values()}
    return {elsewhere.get(project_id, PRIMARY) for project_id in scope.project_ids}


def scopes_by_database(
    scope: ProjectScope, database: Callable[[str], Database] = Database
) -> dict[Database, ProjectScope]:
    """Divide a scope by the databases that have its projects, the primary first. `database` makes each of its alias.

    Each part names its projects: while one moves, another database may have rows of it, too. Raise Unavailable for a database
    that the settings lack, rather than leave its projects out.
    """
    elsewhere = places()
    if not elsewhere:
        return {database(PRIMARY): scope}
    keys = Project.objects.values_list("pk", flat=True) if scope.project_ids is None else scope.project_ids
    divided = defaultdict(set)
    for key in keys:
        divided[elsewhere.get(key, PRIMARY)].add(key)
    if unknown := sorted(divided.keys() - {*all_aliases()}):
        text = _("The settings lack the database “%(alias)s”, which has the traces of some projects.")
        raise Unavailable(text % {"alias": unknown[0]}, code="project_database_unavailable")
    return {
        database(alias): ProjectScope(frozenset(divided[alias])) for alias in all_aliases() if alias in divided
    } or {database(PRIMARY): scope}


def refuse_several(scope: ProjectScope, *, field: str = "project") -> None:
    """Raise InvalidInput if the projects of a scope are in several databases."""
    if project_aliases() and len(aliases_of(scope)) > 1:
        raise InvalidInput(
            _("“%(field)s” is required: your projects are in several databases, of which a request reads one.")
            % {"field": field},
            field=field,
        )


def projects_in(db: Database) -> QuerySet[Project]:
    """Return the projects whose traces are in a database."""
    rows = Project.objects.all()
    if not project_aliases():
        return rows
    return rows.filter(place=None) if db.is_primary else rows.filter(place__database__alias=db.alias)


def by_database(projects: Iterable[Project]) -> dict[str, list[Project]]:
    """Divide projects by the aliases of their databases, the primary first."""
    elsewhere, found = places(), defaultdict(list)
    for project in projects:
        found[elsewhere.get(project.pk, PRIMARY)].append(project)
    return {alias: found[alias] for alias in all_aliases() if alias in found}


# --- Changes ----------------------------------------------------------------------------------------------------------


def place(project: Project) -> None:
    """Put a project that was just created into the database that the settings name for it, if they name one. Raise Conflict."""
    alias = conf.PROJECT_DATABASES.get(project.slug, PRIMARY)
    if alias != PRIMARY:
        copy_project(project, alias)
        set_place(project, alias)
        change_triggers(PRIMARY, lambda cursor: refuse_rows(project.pk, cursor))


def set_place(project: Project, alias: str) -> None:
    """Let requests from now on look for the traces of a project in this database."""
    with primary.atomic():
        if alias == PRIMARY:
            ProjectPlace.objects.filter(project=project).delete()
        else:
            database = ProjectDatabase.objects.get(alias=alias)
            ProjectPlace.objects.update_or_create(project=project, defaults={"database": database})


def copy_project(project: Project, alias: str) -> None:
    """Copy the row of a project, or its changes, to a database of traces."""
    if alias != PRIMARY:
        fields = [field.attname for field in Project._meta.concrete_fields]
        row = Project(**{name: getattr(project, name) for name in fields})
        others = [name for name in fields if name != "id"]
        Project.objects.using(alias).bulk_create(
            [row], update_conflicts=True, unique_fields=["id"], update_fields=others
        )


def change_triggers(alias: str, change: Callable[[Any], None]) -> None:
    """Change triggers of tables that others use: again and again, until nobody is in the way for a moment. Raise Conflict."""

    def change_once() -> None:
        with Database(alias).atomic(), Database(alias).cursor() as cursor:
            # Shorter than deadlock_timeout: not the others shall fail, but this.
            cursor.execute("SET LOCAL lock_timeout = '500ms'")
            change(cursor)

    try:
        retry_locked(change_once, patience=WAIT_SECONDS, pause=_PAUSE_SECONDS)
    except LocksHeld as error:
        raise Conflict(_("Others did not stop writing for a moment. Try again when there is less to do.")) from error


def refuse_rows(project_id: int, cursor: Any) -> None:
    """Let the database of the cursor refuse new rows of a project, which is elsewhere."""
    cursor.execute(_REFUSE)
    for table in tables_with_project():
        cursor.execute(
            sql.SQL(
                "CREATE OR REPLACE TRIGGER {name} BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW "
                "WHEN (NEW.project_id = {project}) EXECUTE FUNCTION {function}()"
            ).format(
                name=sql.Identifier(f"{AWAY}_{project_id}"),
                table=sql.Identifier(table),
                project=sql.Literal(project_id),
                function=sql.Identifier(AWAY),
            )
        )


def accept_rows(project_id: int, cursor: Any) -> None:
    """Let the database of the cursor take rows of a project again."""
    for table in tables_with_project():
        cursor.execute(
            sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
                sql.Identifier(f"{AWAY}_{project_id}"), sql.Identifier(table)
            )
        )


# Like a server that is about to stop, for which senders try again.
_REFUSE: Final = f"""
    CREATE OR REPLACE FUNCTION {AWAY}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('{MOVING}', true) = 'on' THEN
            RETURN coalesce(NEW, OLD);
        END IF;
        RAISE EXCEPTION 'the traces of this project are being moved, or are in another database' USING ERRCODE = '57P03';
    END $$
    """


def tables_with_project() -> list[str]:
    """Return the tables of traces whose rows name their project, besides the log of changes and statistics."""
    return [
        model._meta.db_table for model in apps.get_models() if is_of_traces(model) and model._meta.model_name in _ROOTS
    ]


_ROOTS: Final = frozenset({"session", "message", "tool", "toolcall", "event", "span", "score"})
