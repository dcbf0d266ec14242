"""/import/: upload transcripts in the files of agents and other systems; see traces_app.imports.importer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpResponseBase, QueryDict
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from access_app.conf import conf
from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.permissions import project_for_write
from access_app.request_database import database
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.request_body import JSON, NDJSON, kept_body, most_values
from messages_app.http.responses import answer
from traces_app.imports.archives import Budget
from traces_app.imports.importer import import_source
from traces_app.imports.reports import FileReport, totals_of
from traces_app.queries.schemas.imports import Imported
from tracesite_sdk.formats.registry import FORMATS, Format, format_named
from tracesite_sdk.transcripts.documents import Source, ValueBudget, open_file_source

from . import examples
from .viewset import TraceViewSet

FORM = "multipart/form-data"
ANYTHING = "application/octet-stream"
_PACKED = ("application/zip", "application/x-tar", "application/gzip", "application/zstd")
_MOST_FILES = 10_000
"""Files that one upload may hold in archives. The command accepts more."""
_PARAMETERS = ("project", "format", "dry_run")
_NAMES = tuple(format_.NAME for format_ in FORMATS)
_FILE: dict[str, Any] = {"type": "string", "format": "binary"}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "project": {"type": "string"},
    "format": {"type": "string", "enum": ["auto", *_NAMES], "default": "auto"},
    "dry_run": {"type": "boolean", "default": False},
}
_MEANINGS = {
    "format": "The format of the files. auto: detect it from the content.",
    "dry_run": "true: read and count everything, but store nothing.",
}


class ImportViewSet(TraceViewSet):
    """Uploads of transcripts."""

    tag = "Send traces"

    @extend_schema(
        operation_id="import_transcripts",
        parameters=[
            openapi.PROJECT,
            *(
                OpenApiParameter(name=name, type=_SCHEMAS[name], description=description)
                for name, description in _MEANINGS.items()
            ),
        ],
        request={
            FORM: {
                "type": "object",
                "properties": {
                    "file": {**_FILE, "description": "A transcript or an archive. May be repeated."},
                    **{name: {**schema, "description": "Same as the parameter."} for name, schema in _SCHEMAS.items()},
                },
                "required": ["file"],
            },
            ANYTHING: {**_FILE, "description": "A transcript in any format, or an archive of transcripts."},
            JSON: {"description": "A transcript in any JSON format; with application/x-ndjson, in any of JSON Lines."},
        },
        responses={200: Imported, **openapi.errors(400, 404, 413, 415)},
        examples=examples.IMPORT,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Import transcripts of agents and other systems from files.

        Of transcripts that were imported before, only new entries are stored. Send a file, or an archive of files (zip,
        tar; gzip, bzip2, xz, zstd). The content decides the format. The report lists other files, too; without any
        transcript: 400. Packed files may unpack to the maximum size of a body.
        """
        db = database(request)
        check_parameters(request.query_params, _PARAMETERS)
        with kept_body(request, (FORM, ANYTHING, JSON, NDJSON, *_PACKED)) as (media_type, body):
            form = _uploaded(request, body) if media_type == FORM else _whole(request, body)
            with form as (parameters, sources):
                is_dry = _is_dry(parameters)
                format_ = _format(parameters)
                project = project_for_write(request, parameters.get("project"))
                reports = import_files(db, sources, None if is_dry else project.pk, format_)
        return answer({"project": project.slug, "dry_run": is_dry, "files": reports, "totals": totals_of(reports)})


def import_files(
    db: Database, sources: Iterable[Source], project_id: int | None, format_: Format | None = None
) -> list[FileReport]:
    """Import the files of one upload, within its limits. Raise InvalidInput if no file has a transcript."""
    budget = budget_of_upload()
    reports: list[FileReport] = []
    for source in sources:
        reports += import_source(db, source, project_id, format_=format_, budget=budget)
    if not any(report.status == "read" for report in reports):
        raise _nothing_read(reports)
    return reports


def budget_of_upload() -> Budget:
    """Return the limits of one upload, packed or not."""
    return Budget(left=conf.MAX_BODY_BYTES, most_files=_MOST_FILES, values=ValueBudget(left=most_values()))


@contextmanager
def _whole(request: Request, body: BinaryIO) -> Iterator[tuple[Mapping[str, str], list[Source]]]:
    """Read the body as one file."""
    yield _parameters(request.query_params, QueryDict()), [open_file_source(body, "body")]


@contextmanager
def _uploaded(request: Request, body: BinaryIO) -> Iterator[tuple[Mapping[str, str], list[Source]]]:
    """Parse the parameters and the files of a form; the files are closed on exit."""
    meta = {"CONTENT_TYPE": request.META.get("CONTENT_TYPE", ""), "CONTENT_LENGTH": body.tell()}
    body.seek(0)
    try:
        form, uploaded = MultiPartParser(meta, cast(Any, body), [UnnamedFiles()]).parse()
    except INVALID_FORM as error:
        raise invalid_form(error) from error
    files = [file for name in uploaded for file in uploaded.getlist(name)]
    with closing(_Files(files)):
        check_parameters(form, _PARAMETERS)
        check_parameters(uploaded, ("file",), ("file",))
        yield _parameters(request.query_params, form), sources_of(files)


def sources_of(files: Sequence[UploadedFile[bytes]]) -> list[Source]:
    """Return the files of a form as sources. Raise InvalidInput if there is none."""
    if not files:
        raise InvalidInput(_("The form has no file. Send the transcript in the field “file”."), field="file")
    return [open_file_source(cast(BinaryIO, file.file), file.name or "file") for file in files]


INVALID_FORM = (MultiPartParserError, SuspiciousOperation)
"""What Django raises for a form that it cannot parse, or that has too many fields or files."""


def invalid_form(error: Exception) -> InvalidInput:
    return InvalidInput(_("Invalid form data: %(reason)s") % {"reason": error}, code="invalid_form")


class UnnamedFiles(FileUploadHandler):
    """Keep the files of a form in temporary files without names, which do not outlive a killed process."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.file = TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - closed with the upload

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.file.write(raw_data)

    def file_complete(self, file_size: int) -> UploadedFile[bytes]:
        self.file.flush()
        return UploadedFile(self.file, self.file_name, self.content_type, file_size, self.charset)

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class _Files:
    """Uploaded files, which closing deletes."""

    def __init__(self, files: list[Any]) -> None:
        self._files = files

    def close(self) -> None:
        for file in self._files:
            file.close()


def _parameters(query: QueryDict, form: QueryDict) -> dict[str, str]:
    both = query.keys() & form.keys()
    if both:
        raise InvalidInput(_("This parameter may be given only once."), field=min(both))
    return {**query.dict(), **form.dict()}  # type: ignore[dict-item]  # each is given once: a text


def _is_dry(parameters: Mapping[str, str]) -> bool:
    value = parameters.get("dry_run", "")
    if value not in ("", "true", "false"):
        raise InvalidInput(_("Invalid value. Allowed: %(words)s.") % {"words": "true, false"}, field="dry_run")
    return value == "true"


def _format(parameters: Mapping[str, str]) -> Format | None:
    name = parameters.get("format", "")
    if name in ("", "auto"):
        return None
    format_ = format_named(name)
    if format_ is None:
        words = ", ".join(["auto", *_NAMES])
        raise InvalidInput(_("Invalid value. Allowed: %(words)s.") % {"words": words}, field="format")
    return format_


def _nothing_read(reports: list[FileReport]) -> InvalidInput:
    """Return the error of an upload without transcripts, with the reasons of its first files."""
    reasons = "; ".join(f"{report.path}: {report.reason}" for report in reports[:3])
    return InvalidInput(
        _("No transcript was found. %(reasons)s") % {"reasons": Truncator(reasons).chars(500)}, code="no_transcript"
    )
