"""Health flags: the problems of a trace as received, stored in `Message.health`.

The names are stored and must never change. Each flag is set in one place.
"""

from __future__ import annotations

ORPHAN_RESULT = "orphan_result"
"""A result belongs to no call. A placeholder call holds it, with this flag in its metadata."""
MISSING_RESULT = "missing_result"
"""A call has no result although its run is over. Computed for each request and never stored, because a result may still
arrive."""
GUESSED_RESULT = "guessed_result"
"""A result names no call, and fits several that were open: it was given to the first one, which has this flag in its
metadata. Or a step may be of another run: it has this flag in its metadata, too."""
REPAIRED_ID = "repaired_id"
"""A repeated call id such as "call_7call_7" was folded. The received id is `repaired_id` in the call's metadata."""
REPAIRED_NAME = "repaired_name"
"""A repeated tool name was folded. The received name is `repaired_name` in the call's metadata."""
EMPTY_TOOL_NAME = "empty_tool_name"
"""A call has no tool name, or only spaces."""
INVALID_ARGUMENTS = "invalid_arguments"
"""The arguments of a call are a text that is not JSON, kept under `_raw`."""
TIME_OUT_OF_RANGE = "time_out_of_range"
"""The time of a message was out of range and was replaced."""
NAIVE_TIME = "naive_time"
"""The time of a message had no zone and was taken as UTC."""
TIME_WENT_BACK = "time_went_back"
"""A message has an earlier time than the one before it: see `transcripts.with_times`."""
PARENT_UNKNOWN = "parent_unknown"
"""A call named a parent that is not a call of its message; the name is `parent` in the call's metadata."""
EVENTS_DROPPED = "events_dropped"
"""The recorder lost events of this message. The number is in `recorder` in its metadata, as for the next two flags."""
SAMPLED = "sampled"
"""Sampling left out calls of this message."""
TRUNCATED = "truncated"
"""The recorder truncated values, which are listed in `truncated` in the metadata of the call, step or message, or references to
files of the trace were left as they are, because it has too many."""
INTERRUPTED = "interrupted"
"""The run was closed because its process ended or sent nothing more: see messages_app.interruptions."""
STOPPED = "stopped"
"""A person stopped the run before it ended, as its producer says: an error of this kind is no failure of the agent."""

FLAGS = (
    ORPHAN_RESULT,
    MISSING_RESULT,
    GUESSED_RESULT,
    REPAIRED_ID,
    REPAIRED_NAME,
    EMPTY_TOOL_NAME,
    INVALID_ARGUMENTS,
    TIME_OUT_OF_RANGE,
    NAIVE_TIME,
    TIME_WENT_BACK,
    PARENT_UNKNOWN,
    EVENTS_DROPPED,
    SAMPLED,
    TRUNCATED,
    INTERRUPTED,
    STOPPED,
)
"""All flags. A producer may set others of its own."""
