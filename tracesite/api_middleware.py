"""The middleware of programs: what a request with a key and without cookies passes through, in place of all that pages need.

It has no session, no form and no browser to protect. What a small answer costs: docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware
from django.middleware.security import SecurityMiddleware
from django.urls import ResolverMatch, resolve
from django.utils import translation
from django.utils.cache import patch_vary_headers

from .compression import CompressionMiddleware
from .pages import is_page

Answer = Callable[[HttpRequest], HttpResponseBase]

# Paths come from outside: what is remembered of them is bounded.
_LONGEST_REMEMBERED = 100


class ApiMiddleware:
    """Answers requests of programs as all middleware behind it would, and passes on those of others."""

    def __init__(self, get_response: Answer) -> None:
        self._answer_others = get_response
        self._answer = _guarded(_view)
        # The innermost first.
        for middleware in (CommonMiddleware, LanguageMiddleware, CompressionMiddleware, SecurityMiddleware):
            self._answer = _guarded(middleware(self._answer))

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._answer(request) if _is_of_a_program(request) else self._answer_others(request)


class LanguageMiddleware:
    """Django's LocaleMiddleware without languages in paths, which we have none of: for these it looks four times a request."""

    def __init__(self, get_response: Answer) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        language = translation.get_language_from_request(request)
        translation.activate(language)
        request.LANGUAGE_CODE = language
        response = self._get_response(request)
        patch_vary_headers(response, ("Accept-Language",))
        response.headers.setdefault("Content-Language", language)
        return response


def _guarded(get_response: Any) -> Answer:
    # The stubs speak of asynchronous ones, too.
    guarded: Answer = convert_exception_to_response(get_response)  # type: ignore[assignment]
    return guarded


def _is_of_a_program(request: HttpRequest) -> bool:
    has_key = "HTTP_AUTHORIZATION" in request.META or "HTTP_X_API_KEY" in request.META
    return has_key and "HTTP_COOKIE" not in request.META and not is_page(request)


def _view(request: HttpRequest) -> HttpResponseBase:
    path = request.path_info
    find = _remembered if len(path) <= _LONGEST_REMEMBERED else resolve
    match = request.resolver_match = find(path, settings.ROOT_URLCONF)
    response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
    return response


@lru_cache(maxsize=1024)
def _remembered(path: str, urlconf: str) -> ResolverMatch:
    return resolve(path, urlconf)
