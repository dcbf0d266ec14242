"""The middleware of programs: what a request with a key and without cookies passes through, in place of all that pages need.

It has no session, no form and no browser to protect. What a small answer costs: docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware
from django.middleware.security import SecurityMiddleware
from django.template.response import SimpleTemplateResponse
from django.urls import ResolverMatch, resolve
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.datastructures import MultiValueDict

from .compression import compressed
from .pages import is_page
from .remembering import LONGEST, MOST, remembered

Answer = Callable[[HttpRequest], HttpResponseBase]

# Of a query: there Django decides what it makes of it.
_MOST_PARAMETERS = 100


class ApiMiddleware:
    """Answers requests of programs as all middleware behind it would, and passes on those of others.

    Django's security, language and common middleware and our compression, one inside the other as in the settings, but
    written out: called as such they ask each time what is the same for all requests, and guard each other.
    """

    def __init__(self, get_response: Answer) -> None:
        self._answer_others = get_response
        self._security = SecurityMiddleware(get_response)
        self._common = CommonMiddleware(get_response)
        self._guarded = _guarded(self._answer)
        self._checked = _guarded(self._check)
        self._view = _guarded(_view)
        self._secured: dict[bool, dict[str, tuple[str, str]]] = {}
        """The headers that the security middleware adds, over HTTP and over HTTPS: nothing else matters to it."""
        self._hosts: set[str] = set()
        """Headers with which the common middleware let requests pass: of these it asks nothing else."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not _is_of_a_program(request):
            return self._answer_others(request)
        redirect: HttpResponseBase | None = self._security.process_request(request)
        response = redirect or self._guarded(request)
        self._secure(request, response)
        return response

    def _secure(self, request: HttpRequest, response: HttpResponseBase) -> None:
        is_secure = request.is_secure()
        added = self._secured.get(is_secure)
        if added is None:
            bare = HttpResponse()
            del bare.headers["Content-Type"]
            self._security.process_response(request, bare)
            added = self._secured[is_secure] = bare.headers._store
        # As the headers keep them: to set one as one sets an item of a dict takes ten calls.
        response.headers._store = added | response.headers._store

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        language = _language(request.META.get("HTTP_ACCEPT_LANGUAGE", ""))
        translation.activate(language)
        request.LANGUAGE_CODE = language
        response = self._checked(request)
        patch_vary_headers(response, ("Accept-Language",))
        response.headers.setdefault("Content-Language", language)
        return compressed(request, response)

    def _check(self, request: HttpRequest) -> HttpResponseBase:
        host = request.META.get("HTTP_HOST", "")
        if host not in self._hosts:
            redirect = self._common.process_request(request)
            if redirect is not None:
                return self._common.process_response(request, redirect)
            if len(self._hosts) >= MOST:
                self._hosts.clear()
            if 0 < len(host) <= LONGEST:
                self._hosts.add(host)
        # Who names a charset means the query, too.
        parameters = _parameters(request.META.get("QUERY_STRING", "")) if request.encoding is None else None
        if parameters is not None:
            request.GET = parameters
        return self._common.process_response(request, self._view(request))


def _is_of_a_program(request: HttpRequest) -> bool:
    has_key = "HTTP_AUTHORIZATION" in request.META or "HTTP_X_API_KEY" in request.META
    return has_key and "HTTP_COOKIE" not in request.META and not is_page(request)


def _guarded(get_response: Any) -> Answer:
    # The stubs speak of asynchronous ones, too.
    guarded: Answer = convert_exception_to_response(get_response)  # type: ignore[assignment]
    return guarded


@remembered
def _language(accept_language: str) -> str:
    """What Django's LocaleMiddleware finds for who has no cookie, with no languages in paths."""
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accept_language
    return translation.get_language_from_request(request)


def _parameters(query: str) -> Any:
    """What `request.GET` is asked for, in half of the time; None for a query that is left to Django."""
    if not query.isascii() or query.count("&") >= _MOST_PARAMETERS:
        return None
    lists: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        lists.setdefault(name, []).append(value)
    return MultiValueDict(lists)


def _view(request: HttpRequest) -> HttpResponseBase:
    match = request.resolver_match = _match(request.path_info, settings.ROOT_URLCONF)
    response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
    # What DRF answers by itself, and its pages.
    return response.render() if isinstance(response, SimpleTemplateResponse) else response


@remembered
def _match(path: str, urlconf: str) -> ResolverMatch:
    return resolve(path, urlconf)
