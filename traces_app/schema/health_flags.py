"""What can be odd about a trace as it came: the flags of `Message.health`.

A flag is a word that never changes once stored. Each is set in one place and counted by what it leaves behind.
"""

from __future__ import annotations

ORPHAN_RESULT = "orphan_result"
"""A result answered no call. A placeholder call carries it, with this word in its metadata."""
MISSING_RESULT = "missing_result"
"""A call has no result though its run is over. Derived where it is asked for, never stored: a result may still come."""
REPAIRED_ID = "repaired_id"
"""A call id was repeated, such as "call_7call_7", and was folded. What was received is `repaired_id` in the call's metadata."""
REPAIRED_NAME = "repaired_name"
"""The same of a tool's name; what was received is `repaired_name` in the call's metadata."""
EMPTY_TOOL_NAME = "empty_tool_name"
"""A call names no tool: its name is "", or was nothing but spaces."""
INVALID_ARGUMENTS = "invalid_arguments"
"""The arguments of a call are a text that is no JSON, kept under `_raw`."""
TIME_OUT_OF_RANGE = "time_out_of_range"
"""A message said a time that cannot be and got another one."""
NAIVE_TIME = "naive_time"
"""A message has a time that said no zone; it was read as UTC."""
TIME_WENT_BACK = "time_went_back"
"""A message says an earlier time than the one before it: see `transcripts.with_times`."""
PARENT_UNKNOWN = "parent_unknown"
"""A call named a parent that is no call of its message; the name is `parent` in the call's metadata."""
EVENTS_DROPPED = "events_dropped"
"""The recorder lost events of this message: how many is `recorder` in its metadata, as for the next two."""
SAMPLED = "sampled"
"""Calls of this message were left out by sampling."""
TRUNCATED = "truncated"
"""Values were cut by the recorder. Which ones is `truncated` in the metadata of the call, step or message."""
INTERRUPTED = "interrupted"
"""The run was closed because its process ended, or because nothing more was heard of it: see messages_app.interruptions."""

FLAGS = (
    ORPHAN_RESULT,
    MISSING_RESULT,
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
)
"""All of them. A producer may set others of its own."""
