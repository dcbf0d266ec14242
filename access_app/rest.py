"""Base classes of our REST views, with settings of their own: REST_FRAMEWORK of the project does not change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from drf_spectacular.utils import extend_schema as extend_schema_of_class
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.settings import DEFAULTS, IMPORT_STRINGS, APISettings
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from .permissions import choose_database

Method = TypeVar("Method", bound=Callable[..., Any])

OURS = APISettings(
    {  # type: ignore[arg-type]  # the stubs want all settings
        "DEFAULT_AUTHENTICATION_CLASSES": [
            "access_app.authentication.ApiKeyAuthentication",
            "access_app.authentication.StaffSessionAuthentication",
        ],
        "DEFAULT_PERMISSION_CLASSES": ["access_app.permissions.HasScope"],
        "DEFAULT_THROTTLE_CLASSES": ["access_app.throttling.KeyRateThrottle"],
        "DEFAULT_RENDERER_CLASSES": ["tracesite.http.renderers.JsonRenderer"],
        # For small objects. Bodies with traces are read by the views themselves: see messages_app.http.request_body.
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
        "DEFAULT_SCHEMA_CLASS": "tracesite.http.openapi.AutoSchema",
        # ?format= would be a parameter that some answer ignores.
        "URL_FORMAT_OVERRIDE": None,
        "EXCEPTION_HANDLER": "tracesite.http.errors.exception_handler",
    },
    DEFAULTS,
    IMPORT_STRINGS,
)
"""Classes are given by name, so that no app imports what is above it."""


class Negotiation(DefaultContentNegotiation):
    settings = OURS  # type: ignore[assignment]  # by the stubs, settings of another class


class ApiView(APIView):
    """The base of all our views; those of foreign APIs change what their product does otherwise."""

    settings = OURS
    authentication_classes = OURS.DEFAULT_AUTHENTICATION_CLASSES
    permission_classes = OURS.DEFAULT_PERMISSION_CLASSES
    throttle_classes = OURS.DEFAULT_THROTTLE_CLASSES
    renderer_classes = OURS.DEFAULT_RENDERER_CLASSES
    parser_classes = OURS.DEFAULT_PARSER_CLASSES
    content_negotiation_class = Negotiation
    metadata_class = OURS.DEFAULT_METADATA_CLASS
    versioning_class = OURS.DEFAULT_VERSIONING_CLASS
    schema = OURS.DEFAULT_SCHEMA_CLASS()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        choose_database(request, self)


class ApiViewSet(ViewSetMixin, ApiView):
    """The same, with one method for each action."""

    tag: ClassVar[str]
    """The part of the OpenAPI document that describes its operations."""


def extend_schema(**described: Any) -> Callable[[Method], Method]:
    """Describe a method of our views as drf-spectacular's decorator does, which would take the project's class of schemas."""

    def extend(method: Method) -> Method:
        method.kwargs = {"schema": OURS.DEFAULT_SCHEMA_CLASS}  # type: ignore[attr-defined]
        return extend_schema_of_class(**described)(method)

    return extend
