"""Parameters that several resources share: projects, session, message, sender, fields and expand."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import QueryDict
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from access_app.errors import InvalidInput
from access_app.models import ApiKey
from access_app.permissions import names_database, project_in, project_scope
from access_app.readable import Parts, Readable
from access_app.readable_pages import readable
from access_app.request_database import database, use_database_of
from access_app.visibility import ProjectScope
from messages_app.http.responses import words
from messages_app.queries import Among, FoundMessage, FoundSession, find_message
from traces_app.queries.archived import find_session_here, find_session_here_in
from traces_app.queries.messages import EXPANDABLE, MESSAGE_FIELDS, Selection
from traces_app.queries.search.query import MOST_CHARACTERS, SearchQuery, parse
from traces_app.queries.search.texts import FIELDS


def search_parameter(*, required: bool) -> OpenApiParameter:
    return OpenApiParameter(
        "q",
        {"type": "string", "minLength": 2, "maxLength": MOST_CHARACTERS},
        description=(
            'Terms that are all found, also inside of words, in any letter case: `refund "connection refused" -retry '
            f"error:timeout`. Fields: {', '.join(FIELDS)}. A search ends after 2 seconds; `next` goes on."
        ),
        required=required,
    )


PAGING = ("limit", "cursor", "order", "fields", "project")
SEARCH = search_parameter(required=False)
BY_TIME = (*PAGING, "before_time", "page", "page_size", "expand")


def requested_scope(request: Request, needed: str | None = None, *, in_several: bool = False) -> ProjectScope:
    """Return the projects of a request: the one that it names, otherwise all that it may act on. Raise NotFound.

    `needed` is the scope that the request needs, if it is not that of its method; `in_several` as of project_scope.
    """
    scope = project_scope(request, needed, in_several=in_several)
    slug = request.query_params.get("project")
    if not slug:
        return scope
    key = request.auth
    if isinstance(key, ApiKey) and key.project.slug == slug:
        return scope
    project = project_in(request, scope, slug)
    use_database_of(request, project.pk)
    return ProjectScope(frozenset({project.pk}))


def readable_by(request: Request, needed: str | None = None) -> Readable:
    """Return the projects of a request for a list, `needed` as of requested_scope. Raise NotFound."""
    scope = requested_scope(request, needed, in_several=True)
    return Parts({database(request): scope}) if names_database(request) else readable(request, scope)


def named_session(
    request: Request, projects: Readable, *, among: Among = "alive"
) -> tuple[FoundSession | None, Readable]:
    """Return the session that the parameter `session` names, with the projects beside it; None and all projects without it.

    Raise NotFound and Conflict.
    """
    name = request.query_params.get("session")
    return find_session_here_in(projects, name, among=among, field="session") if name else (None, projects)


def requested_message(
    request: Request, message_id: str, session_id: str | None = None, *, deleted: bool = False
) -> FoundMessage:
    """Return the message that the URL names. Raise NotFound, also if it belongs to another session than that of the URL."""
    db = database(request)
    scope = requested_scope(request)
    session = None if session_id is None else find_session_here(db, scope, session_id)
    return find_message(db, scope, message_id, session, deleted=deleted)


def query_in(request: Request) -> SearchQuery | None:
    """Return the search in the parameter `q`; None without it. Raise InvalidInput."""
    text = request.query_params.get("q")
    return parse(text) if text else None


def sender_of(request: Request) -> str:
    """Return the name of the sender for the trash."""
    key = request.auth
    return f"key {key.name}" if isinstance(key, ApiKey) else request.user.get_username()


def selection_in(parameters: QueryDict, expandable: Sequence[str] = EXPANDABLE) -> Selection:
    """Return the parts of messages that the parameters select; those of `EXPANDABLE` without `expand`."""
    expand = words(parameters, "expand", [*expandable, "none"])
    if expand is not None and "none" in expand and len(expand) > 1:
        raise InvalidInput(_("“none” cannot be combined with other values."), field="expand")
    return Selection(
        fields=words(parameters, "fields", MESSAGE_FIELDS) or MESSAGE_FIELDS,
        expand=frozenset(EXPANDABLE) if expand is None else expand,
    )
