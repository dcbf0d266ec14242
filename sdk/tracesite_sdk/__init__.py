"""The SDK of Tracesite: records what an agent does, and reads the transcripts that agents leave. It needs msgspec only.

recorder/        Recorder, the interface for an agent's code; its rooms are in its __init__.py
langchain.py     a callback handler for LangChain and LangGraph; openai_agents.py: a tracing processor for the OpenAI Agents SDK
testing.py       a recorder for tests of agents; pytest_plugin.py: a fixture that answers from a recorded run
events/          what other monitors report, and what events make of a run
formats/         one module for each format of transcripts
spans/           OpenTelemetry and its relatives, read as conversations
transcripts/     what all transcripts share
normalize/       one form for what producers send in many, then redaction
records/         one immutable struct for each thing that a run is made of
redaction/       secrets in plain values

The names below are loaded when they are first used, because the server, which takes only records and formats, would otherwise
load the recorder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder.capture.wrapping import wrap
    from .recorder.delivery.privacy import Privacy
    from .recorder.delivery.sampling import Sampling
    from .recorder.delivery.sinks import FanOutSink, JsonLinesSink, MemorySink, NullSink, Sink
    from .recorder.recording import Recorder, default_recorder, trace_tool
    from .recorder.scopes import Message, Scope, Session, Step, ToolCall
    from .recorder.tracking.tracker import ToolCallChainTracker

__all__ = [
    "FanOutSink",
    "JsonLinesSink",
    "MemorySink",
    "Message",
    "NullSink",
    "Privacy",
    "Recorder",
    "Sampling",
    "Scope",
    "Session",
    "Sink",
    "Step",
    "ToolCall",
    "ToolCallChainTracker",
    "default_recorder",
    "trace_tool",
    "wrap",
]

_MODULES = {
    "capture.wrapping": ["wrap"],
    "delivery.privacy": ["Privacy"],
    "delivery.sampling": ["Sampling"],
    "delivery.sinks": ["FanOutSink", "JsonLinesSink", "MemorySink", "NullSink", "Sink"],
    "recording": ["Recorder", "default_recorder", "trace_tool"],
    "scopes": ["Message", "Scope", "Session", "Step", "ToolCall"],
    "tracking.tracker": ["ToolCallChainTracker"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".recorder.{_MODULE_OF[name]}", __name__), name)
