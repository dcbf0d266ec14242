"""The SDK of Tracesite: records what an agent does, and reads the transcripts that agents leave. It needs msgspec only.

recorder/        Recorder, the interface for an agent's code; its rooms are in its __init__.py
langchain.py     a callback handler for LangChain and LangGraph; openai_agents.py: a tracing processor for the OpenAI Agents SDK
results.py       well-formed results, for tools to return
testing.py       a recorder for tests of agents; pytest_plugin.py: a fixture that answers from a recorded run
events/          what other monitors report, and what events make of a run
formats/         one module for each format of transcripts
eko/             what there is of Eko: its transcripts, its callback messages as events, contexts of its agents
spans/           OpenTelemetry and its relatives, read as conversations
transcripts/     what all transcripts share
normalize/       one form for what producers send in many, then redaction
records/         one immutable struct for each thing that a run is made of
redaction/       secrets in plain values
reading/         commands that read a server, and `tracesite mcp`
__main__.py      the command `tracesite`; waiting_events.py: its `status` and `drain`

The names below are loaded when they are first used, because the server, which takes only records and formats, would otherwise
load the recorder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .eko.contexts import children_of
    from .recorder.capture.wrapping import wrap
    from .recorder.delivery.privacy import Privacy
    from .recorder.delivery.sampling import Sampling
    from .recorder.delivery.sinks import FanOutSink, JsonLinesSink, MemorySink, NullSink, Sink
    from .recorder.instruments.enabling import Names
    from .recorder.recording import Recorder, default_recorder, trace_tool
    from .recorder.scopes import Message, Scope, Session, Step, ToolCall
    from .recorder.snapshots.parts import Codecs
    from .recorder.snapshots.server_store import ServerStore
    from .recorder.snapshots.snapshotting import Snapshots
    from .recorder.snapshots.stores import MemoryStore, SnapshotStore, SqliteStore
    from .recorder.time_machine.machine import Overrides, Replay, TimeMachine, Workflow, idempotent
    from .recorder.time_machine.recorded import Recorded
    from .recorder.time_machine.replaying import replaying
    from .recorder.tracking.tracker import ToolCallChainTracker

__all__ = [
    "Codecs",
    "FanOutSink",
    "JsonLinesSink",
    "MemorySink",
    "MemoryStore",
    "Message",
    "Names",
    "NullSink",
    "Overrides",
    "Privacy",
    "Recorded",
    "Recorder",
    "Replay",
    "Sampling",
    "Scope",
    "ServerStore",
    "Session",
    "Sink",
    "SnapshotStore",
    "Snapshots",
    "SqliteStore",
    "Step",
    "TimeMachine",
    "ToolCall",
    "ToolCallChainTracker",
    "Workflow",
    "children_of",
    "default_recorder",
    "idempotent",
    "replaying",
    "trace_tool",
    "wrap",
]

_MODULES = {
    "eko.contexts": ["children_of"],
    "recorder.capture.wrapping": ["wrap"],
    "recorder.delivery.privacy": ["Privacy"],
    "recorder.delivery.sampling": ["Sampling"],
    "recorder.delivery.sinks": ["FanOutSink", "JsonLinesSink", "MemorySink", "NullSink", "Sink"],
    "recorder.instruments.enabling": ["Names"],
    "recorder.recording": ["Recorder", "default_recorder", "trace_tool"],
    "recorder.scopes": ["Message", "Scope", "Session", "Step", "ToolCall"],
    "recorder.snapshots.parts": ["Codecs"],
    "recorder.snapshots.server_store": ["ServerStore"],
    "recorder.snapshots.snapshotting": ["Snapshots"],
    "recorder.snapshots.stores": ["MemoryStore", "SnapshotStore", "SqliteStore"],
    "recorder.time_machine.machine": ["Overrides", "Replay", "TimeMachine", "Workflow", "idempotent"],
    "recorder.time_machine.recorded": ["Recorded"],
    "recorder.time_machine.replaying": ["replaying"],
    "recorder.tracking.tracker": ["ToolCallChainTracker"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
