"""How to connect an agent: the first page shows it until a trace has come, and a page of its own shows it later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.audit.trail import actor_of, note_entry
from access_app.errors import NotFound
from access_app.keys import create_key
from access_app.models import Project, Role, Scope
from access_app.mounting import base_path
from access_app.permissions import project_in
from access_app.program import program
from access_app.readable_pages import readable_on_page
from access_app.roles import access
from access_app.visibility import visible_to
from messages_app.admin.filters import MANY, readable_projects, scope_of_page
from messages_app.admin.keyset import KeysetAdmin
from traces_app.queries import intake
from traces_app.queries import overview_sums as sums

ADDRESS: Final = "http://127.0.0.1:8000"
KEY: Final = "ts_..."
COMMAND: Final = "tracesite import_transcripts --project main"
"""In the commands of WAYS, as in docs/first_hour.md, which has the same ones; a page has its own in their place."""
NO_KEY: Final = "YOUR-API-KEY"


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to send traces, with what is copied for it."""

    name: str
    title: str | Promise
    about: str | Promise
    commands: str


WAYS: Final = (
    Way(
        name="python",
        title="Python",
        about=gettext_lazy(
            "The recorder, for agents of your own. It never raises into the agent and waits for no network."
        ),
        commands="""\
# pip install ./sdk    in a clone of Tracesite
from tracesite_sdk import Recorder

recorder = Recorder("http://127.0.0.1:8000", key="ts_...")

class Model:  # stands for your client
    def call_llm(self, model, messages):
        return {"content": "Ask the weather service.", "usage": {"input_tokens": 81, "output_tokens": 9}}

@recorder.tool_call
def get_weather(city):
    return {"city": city, "temperature": 31}

client = recorder.enable(Model())

with recorder.session("weather-1", title="Weather", end_user="ada"):
    with recorder.message("What is the weather in Shanghai?") as message:
        client.call_llm("gpt-5", [{"role": "user", "content": "What is the weather in Shanghai?"}])
        weather = get_weather("Shanghai")
        message.content = f"It is {weather['temperature']} degrees."
""",
    ),
    Way(
        name="opentelemetry",
        title="OpenTelemetry",
        about=gettext_lazy(
            "For an agent that calls OpenAI; there are packages for other clients and frameworks, too. An agent that sends spans "
            "already, also with Logfire, Pydantic AI or the AI SDK, needs the variables only."
        ),
        commands="""\
pip install opentelemetry-distro opentelemetry-exporter-otlp-proto-http openinference-instrumentation-openai
export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:8000
export OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20ts_...
# In agent.py, around the loop of the agent, so that all its requests are one run:
#   from opentelemetry import trace
#   with trace.get_tracer("agent").start_as_current_span("agent"):
opentelemetry-instrument python agent.py
""",
    ),
    Way(
        name="langfuse",
        title="Langfuse",
        about=gettext_lazy(
            "Your agent uses the SDK of Langfuse already. Before its version 3, LANGFUSE_BASE_URL is LANGFUSE_HOST."
        ),
        commands="""\
export LANGFUSE_BASE_URL=http://127.0.0.1:8000
export LANGFUSE_PUBLIC_KEY=any
export LANGFUSE_SECRET_KEY=ts_...
python agent.py
""",
    ),
    Way(
        name="langsmith",
        title="LangSmith",
        about=gettext_lazy("For LangChain, LangGraph and @traceable functions."),
        commands="""\
export LANGSMITH_ENDPOINT=http://127.0.0.1:8000
export LANGSMITH_API_KEY=ts_...
export LANGSMITH_TRACING=true
python agent.py
""",
    ),
    Way(
        name="claude-code",
        title="Claude Code",
        about=gettext_lazy(
            "The sessions that it keeps in files; those of Codex and of many other agents go the same way."
        ),
        commands="""\
# where the server runs
tracesite import_transcripts --project main ~/.claude/projects

# on another computer
tar -czC ~/.claude projects | curl -s http://127.0.0.1:8000/api/v1/import/ \\
  -H "Authorization: Bearer ts_..." -H "Content-Type: application/gzip" \\
  --data-binary @-
""",
    ),
    Way(
        name="rest",
        title="REST",
        about=gettext_lazy("For any language: a run as one request of JSON."),
        commands="""\
curl -s http://127.0.0.1:8000/api/v1/ingest/ \\
  -H "Authorization: Bearer ts_..." -H "Content-Type: application/json" -d '{
  "sessions": [{"external_id": "first-request", "title": "Weather", "messages": [
    {"external_id": "m1", "role": "user", "content": "What is the weather in Shanghai?"},
    {"external_id": "m2", "role": "assistant", "content": "31 degrees.", "agent_steps": [
      {"thought": "Ask the weather service.", "tool_calls": [
        {"id": "call_1", "name": "get_weather", "args": {"city": "Shanghai"}, "duration": 41,
         "result": {"success": true, "output": "31 C", "data": {"temp_c": 31}}}]}]}]}]}'
""",
    ),
)


def connect_context(request: HttpRequest, slug: str, token: str = "", key_project: str = "") -> dict[str, Any]:
    """Return what `admin/home_empty.html` shows; with the token of a key that was just made for a project."""
    address = request.build_absolute_uri(base_path()).rstrip("/")
    key = token or NO_KEY
    owned = _owned_projects(request)
    chosen = key_project or slug or next(iter(owned), "")

    # In a clone, as `serve` spells it.
    manage = f".venv/bin/python {program()}" if program() == "manage.py" else program()

    def shown(commands: str) -> SafeString:
        here = commands.replace(COMMAND, f"{manage} import_transcripts --project {chosen or 'SLUG'}")
        parts = here.replace(ADDRESS, address).rstrip().split(KEY)
        return format_html_join(format_html("<mark>{}</mark>", key), "{}", ((part,) for part in parts))

    return {
        "ways": [(way, shown(way.commands)) for way in WAYS],
        "slug": slug,
        "token": token,
        "key_project": key_project,
        "no_key": NO_KEY,
        "owned": owned,
        "chosen": chosen,
        "has_projects": bool(readable_projects(request)),
        "may_import": access(request).allows(Role.EDITOR),
    }


def show_connect(model_admin: KeysetAdmin, request: HttpRequest) -> HttpResponse:
    """Show how to connect an agent. POST makes a key and shows it in the commands, because it is not stored; `open` leads to the
    newest run if there is one."""
    slug = request.GET.get("project", "")
    newest = _newest(request, slug)
    if newest and "open" in request.GET:
        return HttpResponseRedirect(reverse("admin:messages_app_message_change", args=[newest]))
    token = key_project = ""
    if request.method == "POST":
        if not access(request).allows(Role.OWNER):
            raise PermissionDenied
        key_project = request.POST.get("project", "")
        try:
            project = project_in(request, access(request).scope(Role.OWNER), key_project)
        except NotFound as error:
            model_admin.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        assert request.user.is_authenticated, "the admin lets nobody else in"
        actor = actor_of(request)
        name = _("Made on the page “Connect an agent”")
        _key, token = create_key(project, name, [Scope.READ, Scope.WRITE], created_by=request.user, actor=actor)
        # The key has an entry of its own.
        note_entry(actor, model_admin.opts.model_name or "")
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Connect an agent"),
        "opts": model_admin.opts,
        "first": {**connect_context(request, slug, token, key_project), "waits": newest is None},
    }
    return TemplateResponse(request, "admin/traces_app/connect_page.html", context)


def send_arrived(model_admin: KeysetAdmin, request: HttpRequest) -> JsonResponse:
    """Say whether there is a trace, and the id of the newest message, for the scripts of this page and of lists."""
    newest = _newest(request, request.GET.get("project", ""))
    return JsonResponse({"arrived": newest is not None, "newest": newest})


def _newest(request: HttpRequest, slug: str) -> Any:
    """Return the id of the newest message of a project, or of all that the reader may see."""
    scope = scope_of_page(request, readable_projects(request).get(slug))
    found = sums.newest_of(readable_on_page(request, scope).each(intake.newest))
    return found and found[0]


def _owned_projects(request: HttpRequest) -> list[str]:
    owned = visible_to(Project.objects.order_by("slug"), access(request).scope(Role.OWNER), "pk")
    return list(owned.values_list("slug", flat=True)[:MANY])
