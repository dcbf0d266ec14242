"""The parts of the product and their lists, as the rail at the side of every page and the bar above a list name them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlsplit

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True)
class Page:
    label: Promise
    name: str
    """The name of its URL in the admin."""
    query: str = ""
    use: Promise | str = ""
    """What it is for, of a list of settings."""
    rows: tuple[str, ...] = ()
    """How the names of the pages about one of its rows begin, if not only as its own."""

    has_times: bool = False
    """Whether its address can have a range of times."""
    times: str = ""
    """The parameters of the range that `link` has."""

    @property
    def url(self) -> str:
        return reverse(f"admin:{self.name}") + self.query

    @property
    def link(self) -> str:
        """The address that leads to it, with the range of times."""
        return self.url + (f"{'&' if self.query else '?'}{self.times}" if self.times else "")


@dataclass(frozen=True)
class Part:
    icon: str
    """Its symbol in icons.svg."""
    names: tuple[str, ...]
    """How the names of the URLs of its pages begin."""
    lists: tuple[Page, ...]
    """The first is the one that the rail leads to; the others are one click from it."""


PARTS = (
    Part("home", ("index",), (Page(_("Home"), "index"),)),
    Part(
        "runs",
        ("messages_app_message_",),
        (
            Page(_("Runs"), "messages_app_message_changelist", "?role=assistant", has_times=True),
            Page(_("Messages"), "messages_app_message_changelist", has_times=True),
            Page(_("Deleted messages"), "messages_app_message_trash"),
        ),
    ),
    Part(
        "sessions",
        ("messages_app_session_",),
        (
            Page(_("Sessions"), "messages_app_session_changelist", has_times=True),
            Page(_("Trash"), "messages_app_session_trash"),
        ),
    ),
    Part("errors", ("traces_app_toolcall_errors",), (Page(_("Errors"), "traces_app_toolcall_errors"),)),
    Part(
        "tools",
        ("traces_app_tool_", "traces_app_toolcall_"),
        (
            Page(_("Tools"), "traces_app_tool_statistics", rows=("traces_app_tool_",)),
            Page(_("Tool calls"), "traces_app_toolcall_changelist", has_times=True),
            Page(_("Failed calls"), "traces_app_toolcall_changelist", "?status=error", has_times=True),
            Page(_("Tool descriptions"), "traces_app_tool_changelist"),
        ),
    ),
    Part("scores", ("traces_app_score_",), (Page(_("Scores"), "traces_app_score_changelist", has_times=True),)),
)
SEARCH = Part("search", ("messages_app_session_everything",), (Page(_("Search"), "messages_app_session_everything"),))
SETTINGS = Part(
    "settings",
    ("",),
    (
        Page(_("Settings"), "settings"),
        Page(
            _("Projects"),
            "access_app_project_changelist",
            use=_("Members and their roles, retention, masking and sampling"),
            rows=("access_app_project_", "traces_app_maskingrun_"),
        ),
        Page(_("API keys"), "access_app_apikey_changelist", use=_("What agents and programs send and read with")),
        Page(_("Model prices"), "traces_app_modelprice_changelist", use=_("What tokens cost, by model and day")),
        Page(
            _("Jobs"),
            "traces_app_jobrun_changelist",
            use=_("Work in the background: when each job ran, and when it runs next"),
        ),
        # Its changes of settings first: most entries are of reads.
        Page(_("Audit log"), "access_app_auditentry_changelist", "?kind=settings", use=_("Who read and changed what")),
        Page(_("Users"), "auth_user_changelist", use=_("Who may log in")),
        Page(_("Groups"), "auth_group_changelist", use=_("Roles that several people share")),
    ),
)
"""Every page that is of no other part; its lists are in the order of their use."""


def parts(reads_traces: bool, times: str) -> Sequence[Part]:
    """Return the parts that the rail shows, whose links have these parameters of a range of times: without a role in a project there
    is nothing but the settings."""
    return [with_times(part, times) for part in (*PARTS, SEARCH, SETTINGS)] if reads_traces else (SETTINGS,)


def with_times(part: Part, times: str) -> Part:
    """Return a part whose links lead to this range of times, where the lists have one."""
    return replace(part, lists=tuple(replace(page, times=times) if page.has_times else page for page in part.lists))


def lists_of(part: Part | None, listed: Collection[str]) -> Sequence[Page]:
    """Return the lists of a part; of the settings those whose names are among `listed`, which the site has and the reader may see."""
    lists = part.lists if part is not None else ()
    return [page for page in lists if not page.use or page.name in listed]


def list_of(request: HttpRequest, lists: Sequence[Page]) -> Page | None:
    """Return the list of these that a request is for: of those with its address the one with most of its parameters, and one that
    only begins with other parameters if there is no other."""
    fitting = [
        page
        for page, url in ((page, urlsplit(page.url)) for page in lists)
        if url.path == request.path and all(request.GET.get(name) == value for name, value in parse_qsl(url.query))
    ]
    at_all = next((page for page in lists if urlsplit(page.url).path == request.path), None)
    return max(fitting, key=lambda page: len(page.query), default=at_all)


def list_above(request: HttpRequest, lists: Sequence[Page]) -> tuple[Page | None, bool]:
    """Return the list of these whose rows the page of a request is about, and whether that page is the form of a row itself: not
    its history, for example."""
    name = request.resolver_match.url_name if request.resolver_match else None
    for page in sorted(lists, key=lambda page: bool(page.query)):
        for rows in page.rows or (page.name.removesuffix("changelist"),):
            if name and rows != page.name and name.startswith(rows):
                return page, name.removeprefix(rows) in ("add", "change")
    return None, False


def part_of(request: HttpRequest) -> Part | None:
    """Return the part that the page of a request belongs to; None if the address leads nowhere."""
    name = request.resolver_match.url_name if request.resolver_match else None
    return next((part for part in (SEARCH, *PARTS, SETTINGS) if name and name.startswith(part.names)), None)
