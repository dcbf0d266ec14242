"""The one shape of every error: `{"error": {"code", "message", "field", "request_id"}}`; foreign APIs have their own.

Errors that views raise come through `exception_handler`; errors before or outside of views through the handlers that
urls.py names. An unforeseen error is left to Django, which logs it with its stack and calls `server_error`.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import psycopg
from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.http.request import UnreadablePostError
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views import defaults
from rest_framework import exceptions
from rest_framework.permissions import SAFE_METHODS

from access_app import errors
from access_app.db import PRIMARY, REPLICA
from access_app.db.base import CANNOT_CONNECT
from access_app.mounting import below_base
from tracesite_sdk.spans.span import TooManyItems

from . import error_pages
from .foreign_api import foreign_api_of, is_api
from .outages import DATABASE_FAILED, is_away
from .request_log import clean_for_log

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 5

# Our codes for exceptions of Django and DRF; other codes of DRF are kept.
_CODES = {
    "permission_denied": "not_permitted",
    "authentication_failed": "not_authenticated",
    "parse_error": "invalid_json",
}


def error_response(
    request: HttpRequest,
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    headers: dict[str, str] | None = None,
) -> JsonResponse:
    """Return an error response in the one shape. `request` is Django's or DRF's."""
    if foreign := foreign_api_of(request.path):
        body = foreign.error_body(below_base(request.path), request.headers, status, code, message, field)
        return JsonResponse(body, status=status, headers=headers, json_dumps_params={"ensure_ascii": False})
    request_id = getattr(request, "request_id", None)
    body = {"error": {"code": code, "message": message, "field": field, "request_id": request_id}}
    return JsonResponse(body, status=status, headers=headers, json_dumps_params={"ensure_ascii": False})


def exception_handler(exc: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Return the response to an error that a REST view raised; None for an unforeseen one."""
    request = context["request"]
    error = _as_api_error(exc)
    if error is not None:
        return _answer(request, error)
    if isinstance(exc, exceptions.MethodNotAllowed):
        # DRF also sets the header Allow.
        allowed = ", ".join(context["view"].allowed_methods)
        text = _("Method %(method)s is not allowed. Allowed: %(allowed)s.")
        exc = exceptions.MethodNotAllowed(request.method, text % {"method": request.method, "allowed": allowed})
    if isinstance(exc, exceptions.APIException):
        return _answer_to_drf(request, exc)
    if isinstance(exc, DATABASE_FAILED):
        # Its text may hold values of a row: it goes to the log only.
        _log_database_failure(request, exc)
        return _answer(request, _as_unavailable(exc))
    if isinstance(exc, (DataError, psycopg.DataError)) and request.method not in SAFE_METHODS:
        return _answer(request, _as_unstorable(request, exc))
    return None


# --- Outside of REST views ------------------------------------------------------------------------------------


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if isinstance(exception, DisallowedHost):
        # The first thing that goes wrong behind a proxy, so the text is plain, in the API's shape or as plain text. Django's own
        # record of it has a stack of 3 KB, which anybody may cause: the settings leave it out.
        logger.warning("rejected the host name %s", clean_for_log(request.META.get("HTTP_HOST", "")))
        wrong_host = errors.InvalidInput(
            _("This host name is not allowed. Add it to TRACESITE_ALLOWED_HOSTS."), field="Host", code="wrong_host"
        )
        if _is_api(request):
            return _answer(request, wrong_host)
        return HttpResponse(wrong_host.message, status=400, content_type="text/plain; charset=utf-8")
    if not _is_api(request):
        return error_pages.error_page(request, 400, error_pages.INVALID)
    return _answer(request, _as_api_error(exception) or errors.InvalidInput())


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _is_api(request):
        return error_pages.error_page(request, 403, error_pages.FORBIDDEN)
    return _answer(request, errors.NotPermitted())


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _is_api(request):
        return error_pages.error_page(request, 404, error_pages.NOT_FOUND)
    return _answer(request, errors.NotFound(_("There is no resource at this URL.")))


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Called by Django while it handles the error, which it has logged."""
    error = sys.exc_info()[1]
    if isinstance(error, DATABASE_FAILED):
        if is_away(error):
            _log_database_failure(request, error)
        error = _as_unavailable(error)
    if isinstance(error, errors.Unavailable):
        return _answer(request, error) if _is_api(request) else _unavailable_page(error)
    if not _is_api(request):
        return defaults.server_error(request)
    return error_response(request, 500, "internal_error", _("Internal server error. See the server log."))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    if not _is_api(request):
        return error_pages.error_page(request, 403, error_pages.EXPIRED_FORM)
    return _answer(request, errors.NotPermitted(reason, code="csrf_failed"))


# --- Private ----------------------------------------------------------------------------------------------------


def _is_api(request: HttpRequest) -> bool:
    return is_api(request.path)


def _as_api_error(exc: Exception) -> errors.ApiError | None:
    """Return the error itself if it is ours, otherwise our equivalent of Django's."""
    match exc:
        case errors.ApiError():
            return exc
        case Http404():
            return errors.NotFound()
        case PermissionDenied():
            return errors.NotPermitted()
        case TooManyItems():
            return errors.TooLarge(
                _("The body has more than %(most)d %(items)s. Split it into several requests.")
                % {"most": exc.most, "items": exc.items}
            )
        case RequestDataTooBig():
            return errors.TooLarge()
        case UnreadablePostError():
            return errors.InvalidInput(_("The request body could not be read completely."))
        case SuspiciousOperation():
            return errors.InvalidInput()
    return None


def _log_database_failure(request: HttpRequest, error: BaseException) -> None:
    path = clean_for_log(request.path)
    if is_away(error):
        logger.error("the database did not respond: %s: %s", path, clean_for_log(str(error).partition("\n")[0]))
    else:
        logger.error("the database did not respond: %s", path, exc_info=error)


def _as_unavailable(exc: BaseException) -> errors.Unavailable:
    if isinstance(exc.__cause__ or exc, psycopg.errors.DiskFull):
        return errors.Unavailable(_("The database is out of disk space. Try again later."), code="storage_full")
    if (alias := _project_database_away(exc)) is not None:
        text = _(
            "The database “%(alias)s”, which has the traces of some projects, does not respond. Try again shortly."
        )
        return errors.Unavailable(text % {"alias": alias}, code="project_database_unavailable")
    return errors.Unavailable()


def _project_database_away(error: BaseException) -> str | None:
    """Return the alias of the database of projects that could not be connected to, if it was that."""
    for note in getattr(error.__cause__ or error, "__notes__", ()):
        alias = note.removeprefix(CANNOT_CONNECT)
        if alias != note and alias not in (PRIMARY, REPLICA):
            return str(alias)
    return None


def _as_unstorable(request: HttpRequest, exc: BaseException) -> errors.InvalidInput:
    """Return the error for a value that passed our checks and does not fit its column; the transaction was rolled back.

    Every such value is a limit that schema/records.py does not state, so the log gets the stack.
    """
    logger.error("the database refused a value: %s", clean_for_log(request.path), exc_info=exc)
    cause = exc.__cause__ or exc
    reason = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    text = _("The database cannot store a value of this request: %(reason)s. Nothing was stored.")
    return errors.InvalidInput(text % {"reason": reason or exc}, code="unstorable_value")


def _unavailable_page(error: errors.Unavailable) -> HttpResponse:
    page = HttpResponse(render_to_string("503.html", {"message": error.message}), status=error.status)
    page.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return page


def _answer(request: HttpRequest, error: errors.ApiError) -> JsonResponse:
    headers = dict(error.headers)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif error.status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return error_response(request, error.status, error.code, error.message, field=error.field, headers=headers)


def _answer_to_drf(request: HttpRequest, exc: exceptions.APIException) -> JsonResponse:
    headers: dict[str, str] = {}
    if exc.status_code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    wait = getattr(exc, "wait", None)
    if wait is not None:
        headers["Retry-After"] = str(int(wait))
    field, detail = _first_detail(exc.detail)
    code = getattr(detail, "code", None) or exc.default_code
    if isinstance(exc, exceptions.ValidationError):
        code = errors.InvalidInput.default_code
    return error_response(request, exc.status_code, _CODES.get(code, code), str(detail), field=field, headers=headers)


def _first_detail(detail: Any, path: str = "") -> tuple[str | None, Any]:
    """The first message in the nested details of DRF, and the JSON path of the field it is about."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            if inner:
                return _first_detail(inner, _path_of(path, key))
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            if inner:
                # A list of messages is about one field, a list of lists or dicts about the items of a list.
                return _first_detail(inner, _path_of(path, index) if isinstance(inner, (dict, list)) else path)
    return path or None, detail or errors.InvalidInput.default_message


def _path_of(path: str, key: object) -> str:
    if key == "non_field_errors":
        return path
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)
