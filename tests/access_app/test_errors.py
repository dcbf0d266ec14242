"""Errors say what was wrong in words and in a code, and apps below derive theirs from them."""

from __future__ import annotations

import pytest

from access_app import errors

LEAVES = {
    errors.InvalidInput: 400,
    errors.NotAuthenticated: 401,
    errors.NotPermitted: 403,
    errors.NotFound: 404,
    errors.RequestTooSlow: 408,
    errors.Conflict: 409,
    errors.PreconditionFailed: 412,
    errors.TooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.PreconditionRequired: 428,
    errors.TooManyRequests: 429,
    errors.Unavailable: 503,
}


def test_errors_have_a_status_a_unique_code_and_a_message() -> None:
    assert {
        leaf: leaf.status for leaf in errors.ApiError.__subclasses__() if leaf.__module__ == errors.__name__
    } == LEAVES
    assert len({leaf.default_code for leaf in LEAVES}) == len(LEAVES)
    assert all(leaf().message for leaf in LEAVES)


def test_error_carries_message_field_and_code() -> None:
    error = errors.InvalidInput("No such role.", field="messages[0].role", code="invalid_role")

    assert (str(error), error.message, error.field, error.code, error.status) == (
        "No such role.",
        "No such role.",
        "messages[0].role",
        "invalid_role",
        400,
    )


def test_a_derived_error_is_three_lines() -> None:
    class SessionPurged(errors.Conflict):
        default_code = "session_purged"
        default_message = "This session was purged."

    with pytest.raises(errors.Conflict) as caught:
        raise SessionPurged

    assert (caught.value.status, caught.value.code, caught.value.message) == (
        409,
        "session_purged",
        "This session was purged.",
    )
