"""/audit/: search the audit log. For people who own the project; no key reads it."""

from __future__ import annotations

from django.db.models import BigIntegerField
from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from access_app.errors import NotFound
from access_app.masked_reading import mask_of
from access_app.permissions import owned_projects, project_in
from access_app.request_database import database
from access_app.rest import extend_schema
from access_app.visibility import ProjectScope
from messages_app.audit_log import AuditFilterSet, entries
from messages_app.http import openapi, schemas
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer, list_answer
from messages_app.sql.batch import LIST_MS, limited
from messages_app.sql.pagination import QuerySetKeys, page_request, read_page

from .viewset import TraceViewSet

_ENTRY_ID = OpenApiParameter("entry_id", {"type": "integer", "minimum": 0}, OpenApiParameter.PATH)


class AuditViewSet(TraceViewSet):
    """Entries of the audit log."""

    tag = "Administration"

    @extend_schema(
        operation_id="list_audit_entries",
        parameters=[*openapi.filters(AuditFilterSet), *openapi.PAGE, openapi.PROJECT],
        responses={200: schemas.AuditPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List entries of the audit log, newest first.

        Only logins that own the project and superusers can read them; no key can.
        """
        db = database(request)
        parameters = request.query_params
        page = page_request(parameters)
        scope = _scope(request)
        rows = AuditFilterSet(parameters, mask=mask_of(request), also=("limit", "cursor", "order", "project")).found(
            scope
        )
        with limited(db, LIST_MS):
            listed = read_page(QuerySetKeys(rows), page)
        return list_answer(listed, lambda ids: entries(ids, scope))

    @extend_schema(
        operation_id="get_audit_entry",
        parameters=[_ENTRY_ID, openapi.PROJECT],
        responses={200: schemas.AuditEntry, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request, entry_id: int) -> HttpResponseBase:
        """Return one entry of the audit log.

        `hash` covers the entry and `previous_hash`, so that nobody can change or remove an entry unnoticed.
        """
        check_parameters(request.query_params, ("project",))
        answers = entries([str(min(entry_id, BigIntegerField.MAX_BIGINT))], _scope(request))
        if not answers:
            raise NotFound(_("There is no entry with this id."))
        return answer(answers[0])


def _scope(request: Request) -> ProjectScope:
    """Return the project that the request names, otherwise all that the login owns. Raise NotFound."""
    scope, slug = owned_projects(request), request.query_params.get("project")
    return ProjectScope(frozenset({project_in(request, scope, slug).pk})) if slug else scope
