"""Uploads of media: an SDK asks where to send a file, sends it there, and reports how that went.

The URL of an upload is signed and carries what was announced, so nothing is stored before the file is there, and exactly as
many bytes are taken as were announced.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from hashlib import sha256

import msgspec
from django.core import signing
from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.reverse import reverse

from access_app.audit.trail import actor_of, note_counts, note_name
from access_app.errors import Conflict, InvalidInput, NotPermitted, TooLarge
from access_app.masking import masking_of
from access_app.models import Project, Scope
from access_app.permissions import project_for_write
from access_app.request_database import database, database_of
from access_app.rest import ApiView
from messages_app.http.request_body import read_body
from messages_app.http.responses import answer, no_content
from traces_app.spans.deliveries import TOO_MUCH_MEDIA, has_media, record_media
from traces_app.spans.stored import MOST_MEDIA_OF_TRACE
from tracesite.foreign_apis.authentication import AnyHeaderAuthentication
from tracesite_sdk.redaction.engine import redact
from tracesite_sdk.spans.langfuse_ids import trace_id_of
from tracesite_sdk.spans.media import media_id_of, media_of

MAX_MEDIA_BYTES = 10 * 1024 * 1024
"""Maximum size of a file. Each trace has its own copy, which is read whenever its messages are made anew."""
_UPLOAD_SECONDS = 3600
_SALT = "tracesite.langfuse.upload"
_CONTENT_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")


class _Announced(msgspec.Struct, frozen=True, rename="camel"):
    """The announcement of a file by the SDK; only the fields that are needed."""

    content_type: str
    content_length: int
    sha256_hash: str
    trace_id: str | None = None


class MediaView(ApiView):
    authentication_classes = (AnyHeaderAuthentication,)
    schema = None

    def post(self, request: Request) -> HttpResponseBase:
        """Return the id of the media and the URL of its upload, which is null if the trace has it already."""
        db = database(request)
        project = project_for_write(request, None)
        _media_type, body = read_body(request)
        announced = _decoded(body)
        content_hash = _hash_of(announced)
        if announced.trace_id is None:
            raise InvalidInput(_("Only media of traces are stored."), field="traceId")
        if not 0 < announced.content_length <= MAX_MEDIA_BYTES:
            raise TooLarge(_("Expected 1 to %(most)d bytes.") % {"most": MAX_MEDIA_BYTES}, field="contentLength")
        if not _CONTENT_TYPE.fullmatch(announced.content_type):
            raise InvalidInput(_("Expected a media type such as image/png."), field="contentType")
        trace_id, media_id = trace_id_of(announced.trace_id), media_id_of(content_hash)
        url = None
        if not has_media(db, project.pk, trace_id, media_id):
            ticket = signing.dumps(
                [project.pk, trace_id, announced.content_type, announced.content_length, content_hash.hex()], salt=_SALT
            )
            url = reverse("tracesite:langfuse-media-upload", [ticket], request=request)
        return answer({"mediaId": media_id, "uploadUrl": url})


class MediaUploadView(ApiView):
    """Takes a file at a signed URL, without a key: SDKs send none."""

    authentication_classes = ()
    permission_classes = ()
    schema = None

    def put(self, request: Request, ticket: str) -> HttpResponseBase:
        try:
            project_id, trace_id, content_type, content_length, content_hash = signing.loads(
                ticket, salt=_SALT, max_age=_UPLOAD_SECONDS
            )
        except signing.BadSignature as error:
            raise NotPermitted(_("The URL of this upload is not valid any more. Ask for a new one.")) from error
        actor = actor_of(request)
        note_name(actor, "signed URL")
        note_counts(actor, project_id)
        db = database_of(project_id, actor)
        _media_type, content = read_body(request, (content_type,), most=content_length)
        if len(content) != content_length:
            raise InvalidInput(
                _("The content has %(found)d bytes, not the %(announced)d that were announced.")
                % {"found": len(content), "announced": content_length}
            )
        if sha256(content).hexdigest() != content_hash:
            raise InvalidInput(_("The content is not that of the announced SHA-256."))
        if not Project.objects.filter(pk=project_id).exists():
            raise NotPermitted(_("The URL of this upload is not valid any more. Ask for a new one."))
        clean = _redacted(content, project_id)
        reason = record_media(db, project_id, media_of(trace_id, content_type, clean, bytes.fromhex(content_hash)))
        if reason == TOO_MUCH_MEDIA:
            raise TooLarge(
                _("The files of trace %(trace)s would have more than %(most)d bytes as they are stored.")
                % {"trace": trace_id, "most": MOST_MEDIA_OF_TRACE}
            )
        if reason is not None:
            raise Conflict(_("Trace %(trace)s is not stored: %(reason)s.") % {"trace": trace_id, "reason": reason})
        return answer({})


class MediaReportView(ApiView):
    authentication_classes = (AnyHeaderAuthentication,)
    required_scope = Scope.WRITE
    schema = None

    def patch(self, request: Request, media_id: str) -> HttpResponseBase:
        """Take the SDK's report of an upload, which the upload itself has made known."""
        read_body(request)
        return no_content()


def _redacted(content: bytes, project_id: int) -> bytes:
    """Return a file without its secrets, if it is text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return str(redact(text, masking_of(project_id))[0]).encode()


def _decoded(body: bytes) -> _Announced:
    try:
        return msgspec.json.decode(body, type=_Announced)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(_("The body does not announce media: %(reason)s") % {"reason": error}) from error


def _hash_of(announced: _Announced) -> bytes:
    try:
        found = b64decode(announced.sha256_hash, validate=True)
    except (Error, ValueError):
        found = b""
    if len(found) != 32:
        raise InvalidInput(_("Expected a SHA-256 in base64."), field="sha256Hash")
    return found
