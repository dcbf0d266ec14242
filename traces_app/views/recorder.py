"""/recorder/: the settings of a project for its recorders."""

from __future__ import annotations

from django.http import HttpResponseBase
from rest_framework.request import Request

from access_app.models import Project
from access_app.permissions import project_for_write
from access_app.rest import extend_schema
from messages_app.http import openapi
from messages_app.http.filters import check_parameters
from messages_app.http.responses import answer
from traces_app.queries.schemas.recorder import RecorderSampling, RecorderSettings

from .viewset import TraceViewSet


class RecorderViewSet(TraceViewSet):
    """Settings for recorders. The scope `write` suffices, because the keys of recorders often have no other."""

    tag = "Administration"

    @extend_schema(
        operation_id="get_recorder_settings",
        parameters=[openapi.PROJECT],
        responses={200: RecorderSettings, **openapi.errors(400, 404)},
    )
    def settings_of(self, request: Request) -> HttpResponseBase:
        """Return the settings of a project for its recorders.

        Requires the scope `write` only, because the keys of recorders often have no other. Repeat the request from time to
        time, for example once a minute.
        """
        check_parameters(request.query_params, ("project",))
        known = project_for_write(request, request.query_params.get("project"))
        sampling = Project.objects.get(pk=known.pk).sampling()
        return answer(RecorderSettings(sampling=RecorderSampling(**sampling) if sampling else None))
