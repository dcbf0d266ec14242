"""The migrations that were there before `0001_initial` made all tables. Databases that they made keep their names as applied.

Such a database goes on if all of them were applied. Otherwise it has a part of the tables only, and `migrate` would not make the
rest, because the first of them was called `0001_initial`, too.
"""

from __future__ import annotations

from typing import Final

from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.utils.translation import gettext_lazy as _

from . import PRIMARY

TOO_OLD: Final = _(
    "The database lacks migrations that this version of Tracesite no longer has: run “migrate” of commit 83cc3774, which has them, "
    "and then of this version, or use a new database."
)

_NAMES = {
    "access_app": """
        0002_access_changed 0003_project_sampling 0004_membership 0005_key_limits 0006_audit_log 0007_two_factor
        0008_audit_of_seals 0009_masking_rule 0010_viewers 0011_audit_indexes 0012_retention 0013_masked_keys
        0014_project_key 0015_project_encryption 0016_retention_by_periods 0017_project_databases 0001_squashed_0017
    """,
    "messages_app": """
        0002_session_import_digests 0003_message_health 0004_session_last_event 0005_session_pinned_at
        0006_session_lifecycle 0007_session_status 0008_message_root_tool 0009_cost 0010_changed_hours
        0011_saved_view 0012_list_columns 0013_message_system 0014_trash_order 0015_seal_mark 0016_forks
        0017_aborted_sessions 0018_known_interruptions 0019_purged_periods 0020_views_by_list 0001_squashed_0019
    """,
    "traces_app": """
        0002_toast_lz4 0003_events 0004_contexts 0005_model_errors 0006_require_session 0007_spans 0008_model_inputs
        0009_scores 0010_model_prices 0011_shipped_prices 0012_media_of_traces 0013_tool_periods 0014_search_index
        0015_cost_of_tools 0016_run_vectors 0017_search_sessions 0018_search_grams_of_four 0019_seals 0020_archives
        0021_snapshots 0022_erasures 0023_jobs 0024_masking_runs 0025_archived_periods 0026_size_of_snapshot_parts
        0001_squashed_0025
    """,
}
EARLIER: Final = frozenset((app, name) for app, names in _NAMES.items() for name in names.split())
"""App and name of each. No migration that is added may have such a name, because it would pass as applied."""
_LAST = {
    ("access_app", "0017_project_databases"),
    ("messages_app", "0020_views_by_list"),
    ("traces_app", "0025_archived_periods"),
}
"""The last in each app of what `0001_initial` does now."""
_MADE_LAST = "access_app_projectdatabase"
"""A table of which the earlier `0001_initial` of its app knew nothing."""


def is_too_old(alias: str = PRIMARY) -> bool:
    """Return whether some of the earlier migrations were applied to a database, but not all."""
    applied = MigrationRecorder(connections[alias]).applied_migrations().keys()
    if applied & EARLIER:
        return not applied >= _LAST
    if ("access_app", "0001_initial") not in applied:
        return False
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NULL", [_MADE_LAST])
        (is_missing,) = cursor.fetchone()
    return bool(is_missing)
