"""Data for the read benchmarks: a project with its key and login, and the messages of the workload."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import psycopg

from . import workload
from .clients import Crew, Job
from .reads import PAGE, DataSet
from .report import Line, Report
from .workload import Workload

SLUG = "bench"
USER = "bench"
MONTHS_BEFORE = 12
"""Number of empty partitions, as after a year of use, because partitions cost planning time."""
BATCH = 100
AT_ONCE = 4000


def prepare() -> tuple[int, str]:
    """Create the project with all tools, the months and a superuser. Return the project's id and the token of a key."""
    from django.contrib.auth import get_user_model

    from access_app.db import primary
    from access_app.keys import create_key
    from access_app.models import Project, Scope
    from messages_app.sql.periods import Period
    from traces_app.ingest.partitions import ensure_periods
    from traces_app.models import Tool

    project = Project.objects.create(slug=SLUG)
    Tool.objects.bulk_create([Tool(project=project, name=name) for name in workload.TOOLS])
    last = Period.month(2025, 6)
    months = [last]
    while len(months) < MONTHS_BEFORE:
        begin = months[-1].begin
        year, month = divmod(begin.year * 12 + begin.month - 2, 12)
        months.append(Period.month(year, month + 1))
    ensure_periods(primary, months)
    get_user_model()._default_manager.create_superuser(USER)
    return project.pk, create_key(project, name="benchmark", scopes=list(Scope))[1]


def fill(
    report: Report, crew: Crew, database: psycopg.Connection, project_id: int, messages: int, clients: int
) -> DataSet:
    """Send the messages over HTTP and vacuum and analyze the tables."""
    from traces_app.models import Tool

    work = workload.of_reading()
    seconds = 0.0
    for first in range(0, messages, AT_ONCE):
        some = min(AT_ONCE, messages - first)
        share = -(-some // clients)
        crew.prepare(
            [
                Job(workload=work, first=first + at, messages=min(share, some - at), batch=BATCH, way="HTTP", run=0)
                for at in range(0, some, share)
            ]
        )
        seconds += crew.go(-(-some // share))
    report.add(
        Line(name=f"the data set: {messages:,} messages", unit="msg/s", runs=[messages / seconds], better="more")
    )
    # As autovacuum does within minutes; it never analyzes the parents of partitions.
    tables = database.execute(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^(messages|traces)_app_'"
    )
    database.execute(f"VACUUM (ANALYZE) {', '.join(name for (name,) in tables.fetchall())}")
    ids = database.execute("SELECT id::text FROM messages_app_message WHERE project_id = %s ORDER BY id", [project_id])
    # Sessions with at least a page of messages; all sessions of a small data set.
    sessions = database.execute(
        "SELECT id::text FROM messages_app_session WHERE project_id = %s AND message_count >= %s ORDER BY id",
        [project_id, min(PAGE, messages // workload.SESSIONS_AT_ONCE)],
    )
    return DataSet(
        workload=work,
        messages=messages,
        project_id=project_id,
        slug=SLUG,
        tool_ids=dict(Tool.objects.filter(project_id=project_id).values_list("name", "pk")),
        message_ids=[row[0] for row in ids.fetchall()],
        session_ids=[row[0] for row in sessions.fetchall()],
    )


def months_of(work: Workload, messages: int) -> Sequence[str]:
    """Return the suffixes of the partitions that hold a data set."""
    days = range((work.created_at(messages - 1) - work.begin).days + 2)
    return sorted(
        {f"y{day.year:04}m{day.month:02}" for day in (work.begin + timedelta(days=number) for number in days)}
    )


def bytes_sent(work: Workload, messages: int) -> int:
    """Return the estimated size of the JSON of all messages, from a sample of a hundred."""
    sample = range(0, messages, max(1, messages // 100))
    return sum(len(work.batch([number])) for number in sample) * messages // len(sample)


def session_cookie() -> str:
    """Return the Cookie header of the logged-in superuser."""
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(get_user_model()._default_manager.get(username=USER))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
