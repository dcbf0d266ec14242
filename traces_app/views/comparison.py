"""/compare/: two sessions or messages side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from msgspec import UNSET, Raw
from rest_framework.request import Request

from access_app.db import Database
from access_app.errors import InvalidInput, NotFound
from access_app.request_database import database
from access_app.rest import extend_schema
from access_app.visibility import ProjectScope
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer
from messages_app.models import Message, Session
from messages_app.queries import find_message
from messages_app.timestamps import instant_text
from traces_app.queries.archived import find_session_here
from traces_app.queries.comparison import (
    MOST_COMPARED,
    MOST_DETAILED,
    Difference,
    Node,
    compare_messages,
    differences,
    replay_between,
)
from traces_app.queries.schemas import comparison as schemas
from traces_app.queries.word_changes import Pieces, WordChanges

from .parameters import requested_scope
from .viewset import TraceViewSet

WORDS_SECONDS = 0.3
"""After this time other changed texts are returned in one piece."""
_FACTS_OF_SESSION = ("call_count", "failure_count", "input_tokens", "output_tokens", "cost", "duration_ms")
_FACTS_OF_MESSAGE = ("step_count", *_FACTS_OF_SESSION)


class ComparisonViewSet(TraceViewSet):
    """Comparisons."""

    tag = "Search"

    @extend_schema(
        operation_id="compare",
        parameters=[
            OpenApiParameter("left", str, required=True, description="The id of a message; or that of a session."),
            OpenApiParameter("right", str, required=True, description="The id of the other one, of the same kind."),
            openapi.PROJECT,
        ],
        responses={200: schemas.Comparison, **openapi.errors(400, 404, 409)},
    )
    def retrieve(self, request: Request) -> HttpResponseBase:
        """Compare two sessions or two messages.

        The answer names the messages, steps and calls that are the same, those that changed with their fields, and those
        that only one side has. They are paired by what they did, not by ids or places.

        Of a session and its replay (`forked_from`), what the session did before the replayed node is left out, because the
        replay takes it over, and so are the prompts of the replay; `replayed_since` is the time of that node's snapshot.
        """
        db = database(request)
        check_parameters(request.query_params, ("left", "right", "project"))
        scope = requested_scope(request)
        left, right = (_find(request, scope, side) for side in ("left", "right"))
        if type(left) is not type(right):
            raise InvalidInput(_("Compare two sessions or two messages, not one with the other."), field="right")
        replay = replay_between(left, right) if isinstance(left, Session) and isinstance(right, Session) else None
        compared = compare_messages(db, _messages(db, left), _messages(db, right), replay)
        changed = [pair for pair in compared.pairs if pair.change == "changed"][:MOST_DETAILED]
        words = WordChanges(WORDS_SECONDS)
        details = {id(pair): fields for pair, fields in zip(changed, differences(db, changed, words), strict=True)}
        return answer(
            schemas.Comparison(
                kind="message" if isinstance(left, Message) else "session",
                left=str(left.pk),
                right=str(right.pk),
                counts=schemas.ComparedCounts(**compared.counts),
                is_cut=compared.is_cut,
                replayed_since=UNSET if replay is None else instant_text(replay.since),
                facts=_facts(left, right),
                pairs=[
                    schemas.ComparedPair(
                        change=pair.change,
                        left=_node(pair.left),
                        right=_node(pair.right),
                        differences=[_difference(field) for field in details[id(pair)]]
                        if id(pair) in details
                        else UNSET,
                    )
                    for pair in compared.pairs
                ],
            )
        )


def _find(request: Request, scope: ProjectScope, side: str) -> Message | Session:
    db = database(request)
    name = request.query_params.get(side, "")
    if not name:
        raise InvalidInput(_("Give the id of a message or a session."), field=side)
    # Sessions first, because messages often have short external ids.
    try:
        session = find_session_here(db, scope, name, field=side)
    except NotFound as missing:
        try:
            message = find_message(db, scope, name, None)
        except NotFound:
            raise missing from None
        return db.rows(Message.objects).only(*_FACTS_OF_MESSAGE).get(pk=message.pk)
    return db.rows(Session.objects).only("external_id", "metadata", *_FACTS_OF_SESSION).get(pk=session.pk)


def _messages(db: Database, side: Message | Session) -> Sequence[UUID]:
    if isinstance(side, Message):
        return [side.pk]
    rows = db.rows(Message.objects).filter(session_id=side.pk).order_by("pk")
    return list(rows.values_list("pk", flat=True)[: MOST_COMPARED + 1])


def _facts(left: Any, right: Any) -> list[schemas.ComparedFact]:
    names = _FACTS_OF_MESSAGE if isinstance(left, Message) else _FACTS_OF_SESSION
    values = ((name, getattr(left, name), getattr(right, name)) for name in names)
    return [
        schemas.ComparedFact(
            field=name.removesuffix("_ms"),
            change="same" if left_value == right_value else "changed",
            left=_number(left_value),
            right=_number(right_value),
        )
        for name, left_value, right_value in values
    ]


def _number(value: Any) -> Raw:
    return Raw(b"null" if value is None else f"{value:f}".encode() if not isinstance(value, int) else b"%d" % value)


def _node(node: Node | None) -> schemas.ComparedNode | None:
    if node is None:
        return None
    return schemas.ComparedNode(
        id=str(node.id),
        message_id=str(node.message_id),
        kind=node.kind,
        name=node.name,
        status=node.status,
        duration=node.duration_ms,
        usage=UNSET if node.usage is None else Raw(node.usage.encode()),
        cost=UNSET if node.cost is None else _number(node.cost.normalize()),
    )


def _difference(difference: Difference) -> schemas.Difference:
    return schemas.Difference(field=difference.field, left=_pieces(difference.left), right=_pieces(difference.right))


def _pieces(pieces: Pieces | None) -> list[schemas.Piece] | None:
    return None if pieces is None else [schemas.Piece(text=text, changed=changed) for text, changed in pieces]
