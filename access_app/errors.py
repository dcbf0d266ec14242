"""API errors with a message and a code. Other apps derive their errors from these.

Any layer below HTTP may raise them; `tracesite.http.errors` renders them as responses of one shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from django.utils.translation import gettext_lazy as _

from tracesite_sdk.redaction.engine import redact

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise


class ApiError(Exception):
    """Base of all errors that clients see. `message` goes to the client, so it must hold no internals."""

    status: ClassVar[int] = 500
    """HTTP status of the response."""
    default_code: ClassVar[str] = "error"
    default_message: ClassVar[str | StrPromise] = _("Something went wrong.")

    def __init__(
        self,
        message: str | StrPromise | None = None,
        *,
        field: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # Texts quote what was sent, and programs write them to their logs.
        self.message = str(redact(str(message or self.default_message))[0])
        """Text for people: the mistake, and a valid alternative. Without secrets."""
        self.field = field
        """JSON path (`messages[0].role`) or query parameter with the mistake; None without a single one."""
        self.code = code or self.default_code
        """Stable identifier for programs."""
        self.headers = dict(headers or {})
        """Extra response headers, such as Retry-After."""
        super().__init__(self.message)


class InvalidInput(ApiError):
    status = 400
    default_code = "invalid_input"
    default_message = _("Invalid request.")


class NotAuthenticated(ApiError):
    status = 401
    default_code = "not_authenticated"
    default_message = _("Authentication is required.")


class NotPermitted(ApiError):
    status = 403
    default_code = "not_permitted"
    default_message = _("You do not have permission to do this.")


class NotFound(ApiError):
    status = 404
    default_code = "not_found"
    default_message = _("Not found.")


class RequestTooSlow(ApiError):
    status = 408
    default_code = "request_too_slow"
    default_message = _("The request arrived too slowly.")


class Conflict(ApiError):
    status = 409
    default_code = "conflict"
    default_message = _("The request conflicts with the current state.")


class PreconditionFailed(ApiError):
    status = 412
    default_code = "precondition_failed"
    default_message = _("The object has changed since you read it.")


class TooLarge(ApiError):
    status = 413
    default_code = "too_large"
    default_message = _("The request is too large.")


class UnsupportedMediaType(ApiError):
    status = 415
    default_code = "unsupported_media_type"
    default_message = _("Unsupported media type.")


class TooManyRequests(ApiError):
    status = 429
    default_code = "too_many_requests"
    default_message = _("Too many requests. Try again later.")


class PreconditionRequired(ApiError):
    status = 428
    default_code = "precondition_required"
    default_message = _("The version to change is required.")


class Unavailable(ApiError):
    status = 503
    default_code = "unavailable"
    default_message = _("The service is temporarily unavailable. Try again shortly.")
