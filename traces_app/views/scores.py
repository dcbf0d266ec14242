"""/scores/: what people, programs and evaluators think of sessions, messages and calls."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import PolymorphicProxySerializer
from msgspec.structs import replace
from rest_framework import status
from rest_framework.request import Request
from rest_framework.reverse import reverse

from access_app.errors import Conflict
from access_app.masked_reading import mask_of
from access_app.masking import masking_of
from access_app.models import ApiKey
from access_app.permissions import may_read, project_for_write
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import JSON, read_body
from messages_app.http.responses import answer, list_answer, no_content, words
from messages_app.sql.pagination import page_request, read_page
from traces_app.ingest.decode import decode_score_patch, decode_scores
from traces_app.ingest.scores import PlacedScore, change_score, delete_score, store_scores
from traces_app.queries.filters import ScoreFilterSet
from traces_app.queries.schemas.scores import Score, ScorePage, StoredScores
from traces_app.queries.scores import SCORE_FIELDS, find_place, find_score, scores
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score, redact_score_patch

from . import examples
from .parameters import PAGING, named_session, readable_by, requested_scope, sender_of
from .viewset import TraceViewSet

_IDENTITY = frozenset({"id", "project", "external_id"})
_STORED = PolymorphicProxySerializer(
    component_name="StoredScore",
    serializers=[Score, StoredScores],  # type: ignore[list-item]  # structs, see StructExtension
    resource_type_field_name=None,
)


class ScoreViewSet(TraceViewSet):
    """Scores. A score is hidden with the session or message that it is about, and purged with it."""

    tag = "Scores"

    @extend_schema(
        parameters=[
            *openapi.filters(ScoreFilterSet),
            *openapi.PAGE,
            openapi.fields(SCORE_FIELDS),
            openapi.PROJECT,
        ],
        responses={200: ScorePage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request) -> HttpResponseBase:
        """List scores, newest first.

        To find the runs that were judged badly, use `max_score` of `/messages/` instead.
        """
        parameters = request.query_params
        readable = readable_by(request)
        page = page_request(parameters)
        fields = words(parameters, "fields", SCORE_FIELDS) or SCORE_FIELDS
        filters = ScoreFilterSet(parameters, mask=mask_of(request), also=PAGING)
        session, readable = named_session(request, readable)
        rows = readable.rows(lambda db, scope: filters.found(db, scope, session))
        return list_answer(read_page(rows, page), lambda ids: rows.read(ids, lambda db, own: scores(db, own, fields)))

    @extend_schema(
        parameters=[openapi.PROJECT],
        request={JSON: openapi.one_or_many("ScoreInput")},
        responses={201: _STORED, **openapi.errors(400, 404, 409, 413, 415)},
        examples=examples.SCORE,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Store a score, or a list of scores.

        Of a list all are stored, or none. A score is about the narrowest thing that it names: a call, a message, a session or
        a trace, which may arrive later. A score with a known `external_id` replaces that one.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        received, is_list = decode_scores(read_body(request)[1])
        project = project_for_write(request, request.query_params.get("project"))
        placed = [
            PlacedScore(
                redacted=redact_score(_signed(score, request), masking_of(project.pk)),
                place=find_place(db, project.pk, score, f"[{index}]." if is_list else ""),
            )
            for index, score in enumerate(received)
        ]
        ids = [str(score_id) for score_id in store_scores(db, project.pk, placed)]
        stored = scores(db, ids, SCORE_FIELDS if may_read(request) else _IDENTITY)
        if is_list:
            return answer(StoredScores(results=stored), status=status.HTTP_201_CREATED)
        if not stored:
            raise Conflict(_("The message or session was deleted meanwhile."), code="message_deleted")
        location = reverse("tracesite:score", ids, request=request)
        return answer(stored[0], status=status.HTTP_201_CREATED, headers={"Location": location})

    @extend_schema(
        parameters=[openapi.fields(SCORE_FIELDS), openapi.PROJECT],
        responses={200: Score, **openapi.errors(400, 404)},
    )
    def retrieve(self, request: Request, score_id: str) -> HttpResponseBase:
        """Return one score.

        `session_id` is null while the trace or session that it names has not arrived.
        """
        db = database(request)
        check_parameters(request.query_params, ("fields", "project"))
        fields = words(request.query_params, "fields", SCORE_FIELDS) or SCORE_FIELDS
        return answer(scores(db, [str(find_score(db, requested_scope(request), score_id).pk)], fields)[0])

    @extend_schema(
        parameters=[openapi.PROJECT],
        request=records.ScorePatch,
        responses={200: Score, **openapi.errors(400, 404, 413, 415)},
        examples=examples.SCORE_CHANGE,
    )
    def partial_update(self, request: Request, score_id: str) -> HttpResponseBase:
        """Change the value, label, comment or metadata of a score.

        Omitted fields stay; null empties a field.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        score = find_score(db, requested_scope(request), score_id)
        patch = decode_score_patch(read_body(request)[1])
        change_score(db, score.pk, redact_score_patch(patch, masking_of(score.project_id)))
        return answer(scores(db, [str(score.pk)], SCORE_FIELDS if may_read(request) else _IDENTITY)[0])

    @extend_schema(parameters=[openapi.PROJECT], responses={204: None, **openapi.errors(404)})
    def destroy(self, request: Request, score_id: str) -> HttpResponseBase:
        """Delete a score.

        It is deleted for good: scores have no trash.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        delete_score(db, find_score(db, requested_scope(request), score_id).pk)
        return no_content()


def _signed(score: records.Score, request: Request) -> records.Score:
    """Return the score with its source and author; by default who sent it."""
    source: records.ScoreSource = "program" if isinstance(request.auth, ApiKey) else "person"
    return replace(score, source=score.source or source, author=score.author or sender_of(request))
