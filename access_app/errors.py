"""What can go wrong for a client, in words and in a code; other apps derive their errors from these.

Raised anywhere below HTTP; tracesite.http.errors turns them into the one error answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise


class ApiError(Exception):
    """Base of every error that a client may see: `message` is shown to it as it stands, so it holds no internals."""

    status: ClassVar[int] = 500
    """HTTP status of the answer."""
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
        self.message = str(message or self.default_message)
        """For people: what was wrong and what would be right."""
        self.field = field
        """The JSON path (`messages[0].role`) or query parameter at fault, None when there is no single one."""
        self.code = code or self.default_code
        """For programs: stable."""
        self.headers = dict(headers or {})
        """Headers of the answer that say what would be right."""
        super().__init__(self.message)


class InvalidInput(ApiError):
    status = 400
    default_code = "invalid_input"
    default_message = _("The request is not valid.")


class NotAuthenticated(ApiError):
    status = 401
    default_code = "not_authenticated"
    default_message = _("This needs credentials.")


class NotPermitted(ApiError):
    status = 403
    default_code = "not_permitted"
    default_message = _("These credentials do not permit this.")


class NotFound(ApiError):
    status = 404
    default_code = "not_found"
    default_message = _("There is nothing here.")


class Conflict(ApiError):
    status = 409
    default_code = "conflict"
    default_message = _("The request does not fit the present state.")


class PreconditionFailed(ApiError):
    status = 412
    default_code = "precondition_failed"
    default_message = _("The object has changed since it was read.")


class TooLarge(ApiError):
    status = 413
    default_code = "too_large"
    default_message = _("The request is too large.")


class UnsupportedMediaType(ApiError):
    status = 415
    default_code = "unsupported_media_type"
    default_message = _("Requests of this media type are not understood.")


class PreconditionRequired(ApiError):
    status = 428
    default_code = "precondition_required"
    default_message = _("Say which version is to be changed.")


class Unavailable(ApiError):
    status = 503
    default_code = "unavailable"
    default_message = _("The service cannot answer now; try again shortly.")
