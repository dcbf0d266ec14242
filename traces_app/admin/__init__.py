"""The admin of what agents did. Django loads the pages by importing this package."""

# Their import registers the pages.
from . import (  # noqa: F401
    audit_admin,
    call_admin,
    error_states,
    jobs,
    masking_page,
    message_admin,
    prices,
    scores,
    session_admin,
    tool_admin,
)
