"""Snapshots of agents' contexts: recorders store them, and read them to replay a node; and the forks of sessions."""

from __future__ import annotations

from functools import partial

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from msgspec import Raw
from rest_framework import status
from rest_framework.request import Request

from access_app.errors import Conflict, InvalidInput, NotFound, NotPermitted
from access_app.masking import masking_of
from access_app.mounting import base_path
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import read_body
from messages_app.http.responses import answer, list_answer, no_content
from messages_app.models import Session
from messages_app.sql.pagination import page_request, read_page
from traces_app.ingest.snapshots import (
    decode_snapshots,
    refused,
    remove_contents,
    snapshot_id_of,
    store_snapshots,
)
from traces_app.queries.archived import find_session_here
from traces_app.queries.replay_code import replay_code
from traces_app.queries.schemas.snapshots import (
    ForkPage,
    ReplayCode,
    SnapshotPage,
    SnapshotParts,
    StoredSnapshot,
    WholeSnapshot,
)
from traces_app.queries.snapshots import (
    MOST_AT_ONCE,
    context_of,
    find_snapshot,
    forks,
    forks_of,
    names_of,
    parts_of,
    snapshots,
    snapshots_of,
    snapshots_with,
    whole_snapshot,
)
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_snapshots
from tracesite_sdk.records.snapshot_parts import BrokenPartError, TooLargeContextError

from . import examples
from .parameters import requested_scope
from .viewset import TraceViewSet

MOST_REFS = 1_000
_NODE = OpenApiParameter("node", str, description="Only snapshots that hold this node.")
_REPLAYED = OpenApiParameter("node", str, required=True, description="The node to replay.")
_REFS = OpenApiParameter(
    "refs",
    {"type": "array", "items": {"type": "string"}, "maxItems": MOST_REFS},
    required=True,
    explode=False,
    style="form",
    description="The names of the parts, separated by commas.",
)


class SnapshotViewSet(TraceViewSet):
    """Snapshots of agents' contexts."""

    tag = "Snapshots"

    @extend_schema(
        parameters=[openapi.PROJECT],
        request=records.Snapshots,
        responses={201: StoredSnapshot, **openapi.errors(400, 404, 409, 413, 415)},
        examples=examples.SNAPSHOT,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Store a snapshot with its new parts, or a fork.

        Sending it again changes nothing. 409 `snapshots_purged`: the parts that it relies on were removed; `parts_missing`:
        they never arrived, or are not known for this place or size: send all. 413 `snapshots_too_large`: the context or the
        session.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        sent = decode_snapshots(read_body(request)[1])
        project = project_for_write(request, request.query_params.get("project"))
        try:
            redacted = redact_snapshots(sent, masking_of(project.pk))
        except (BrokenPartError, TooLargeContextError) as error:
            raise refused(error) from error
        sums = store_snapshots(db, project.pk, redacted)
        stored = None if sent.snapshot is None else str(snapshot_id_of(sums.session_id, sent.snapshot))
        return answer(
            StoredSnapshot(session_id=str(sums.session_id), snapshot_id=stored), status=status.HTTP_201_CREATED
        )

    @extend_schema(
        parameters=[_NODE, *openapi.PAGE, openapi.PROJECT],
        responses={200: SnapshotPage, **openapi.errors(400, 404)},
    )
    def list(self, request: Request, session_id: str) -> HttpResponseBase:
        """List the snapshots of a session, newest first.

        They come without their contents, which `/snapshots/{snapshot_id}/` has.
        """
        db = database(request)
        check_parameters(request.query_params, ("node", "limit", "cursor", "order", "project"))
        page = page_request(request.query_params)
        session = find_session_here(db, requested_scope(request), session_id)
        node = request.query_params.get("node")
        return list_answer(read_page(snapshots_of(db, session.pk, node), page), partial(snapshots, db))

    @extend_schema(
        operation_id="get_snapshot_parts",
        parameters=[_REFS, openapi.PROJECT],
        responses={200: SnapshotParts, **openapi.errors(400, 404)},
    )
    def parts(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return parts of contexts, and the parts that they name.

        At most about 4 MiB are returned: ask again for those that are missing. 403 `masked_reader`: whoever reads masked values
        reads whole snapshots, because a part has no names by which to mask it.
        """
        db = database(request)
        check_parameters(request.query_params, ("refs", "project"))
        refs = ",".join(request.query_params.getlist("refs")).split(",")
        if not all(refs) or len(refs) > MOST_REFS or "\x00" in "".join(refs):
            raise InvalidInput(
                _("Expected 1 to %(most)d names of parts, separated by commas.") % {"most": MOST_REFS}, field="refs"
            )
        session = find_session_here(db, requested_scope(request), session_id)
        mask = db.read_connection.mask
        if mask is not None and mask.rules_of(session.project_id) is not None:
            raise NotPermitted(
                _("Parts of snapshots cannot be masked. Read whole snapshots: /api/v1/snapshots/{id}/."),
                code="masked_reader",
            )
        contents = parts_of(db, session.pk, refs, MOST_AT_ONCE)
        body = b",".join(b'"%s":%s' % (ref.encode(), content) for ref, content in contents.items())
        return answer(SnapshotParts(parts=Raw(b"{%s}" % body)))

    @extend_schema(parameters=[openapi.PROJECT], responses={204: None, **openapi.errors(404)})
    def destroy(self, request: Request, session_id: str) -> HttpResponseBase:
        """Remove the contents of all snapshots of a session.

        They are removed for good. The snapshots stay listed, with `is_purged`.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        session = find_session_here(db, requested_scope(request), session_id)
        remove_contents(db, session.project_id, session.pk)
        return no_content()

    @extend_schema(parameters=[openapi.PROJECT], responses={200: WholeSnapshot, **openapi.errors(400, 404, 409, 413)})
    def retrieve(self, request: Request, snapshot_id: str) -> HttpResponseBase:
        """Return one snapshot with its content.

        Of those that earlier versions have stored, 413 `snapshots_too_large`: it is larger than what is stored now; 409
        `snapshot_broken`: parts are missing or are none.
        """
        db = database(request)
        check_parameters(request.query_params, ("project",))
        return answer(whole_snapshot(db, find_snapshot(db, requested_scope(request), snapshot_id)))

    @extend_schema(
        operation_id="get_replay",
        parameters=[_REPLAYED, openapi.PROJECT],
        responses={200: ReplayCode, **openapi.errors(400, 404, 409, 413)},
    )
    def replay(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return the code that replays a node of a session.

        A replay needs the workflow of the agent, so it runs there and not on the server. The server, the session, the node and a value
        of its context to change are filled in. 404 `node_not_found`: no snapshot holds the
        node. 409 `snapshots_purged`: the content of the newest one was removed.
        """
        db = database(request)
        check_parameters(request.query_params, ("node", "project"))
        session = find_session_here(db, requested_scope(request), session_id)
        node = request.query_params.get("node", "")
        if not node:
            raise InvalidInput(_("Expected the id of a node."), field="node")
        snapshot = snapshots_with(db, session.pk, node).order_by("-ts", "-pk").first()
        if snapshot is None:
            raise NotFound(_("No snapshot of this session holds this node."), code="node_not_found", field="node")
        if snapshot.is_purged:
            raise Conflict(_("The content of this snapshot was purged."), code="snapshots_purged")
        name = db.rows(Session.objects).values_list("external_id", flat=True).get(pk=session.pk) or str(session.pk)
        code = replay_code(request.build_absolute_uri(base_path()), name, node, context_of(db, snapshot))
        return answer(ReplayCode(node=node, snapshot_id=str(snapshot.pk), language="python", code=code))

    @extend_schema(
        operation_id="list_forks",
        parameters=[*openapi.PAGE, openapi.PROJECT],
        responses={200: ForkPage, **openapi.errors(400, 404)},
    )
    def forks(self, request: Request, session_id: str) -> HttpResponseBase:
        """List the replays of a session, newest first.

        A replay is a session of its own, whose `forked_from` names the node of this one that ran again.
        """
        db = database(request)
        check_parameters(request.query_params, ("limit", "cursor", "order", "project"))
        page = page_request(request.query_params)
        session = find_session_here(db, requested_scope(request), session_id)
        external_id = db.rows(Session.objects).values_list("external_id", flat=True).get(pk=session.pk)
        names = names_of(session.pk, external_id)
        return list_answer(read_page(forks_of(db, session.project_id, names), page), partial(forks, db))
