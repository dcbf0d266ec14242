"""Redirect addresses without their last slash in a way that keeps the body of a request."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware


class Redirect(HttpResponsePermanentRedirect):
    """Status 308: clients that follow it send the same method and body. Others read what to do."""

    status_code = HttpResponsePermanentRedirect.status_code_preserve_request

    def __init__(self, redirect_to: str, **kwargs: Any) -> None:
        super().__init__(redirect_to, content_type="text/plain; charset=utf-8", **kwargs)
        self.content = f"Nothing was done. This address ends with a slash: {self.url}\n".encode()


class SlashMiddleware(CommonMiddleware):
    response_redirect_class = Redirect
