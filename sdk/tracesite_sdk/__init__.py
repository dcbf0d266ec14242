"""The recorder: the part of Tracesite that runs in the process of an agent. It needs msgspec, and neither Django nor a server.

recording.py     Recorder, the interface for an agent's code
scopes.py        the sessions, messages, steps and calls that it opens; decorating.py: scopes as decorators and in other threads
wrapping.py      hooks around functions; enabling.py: agents that do not know the recorder; answers.py: responses of models
snapshots.py     contexts in parts; snapshot_stores.py, server_snapshots.py: where they are kept; snapshotting.py: which ones are
time_machine.py  runs a node again from its snapshot; recorded.py: what a recorded run answers
replaying.py     tests from traces; pytest_plugin.py: their fixture
scores.py        what code and people think of messages and calls
tracker.py       ToolCallChainTracker; chains.py: open chains; chain_files.py: finished chains on the disk
model_clients.py clients of OpenAI and Anthropic; model_apis.py: their requests and responses
openai_agents.py a tracing processor for the OpenAI Agents SDK
langchain.py     a callback handler for LangChain and LangGraph
pipeline.py      entries.py -> sampling.py -> privacy.py -> sinks.py, on one worker thread
http_sink.py     to a server, with transport.py; spool.py and open_runs.py: on the disk until then
database_sink.py to the database of the same process, inside Django
ending.py        exit, fork, SIGTERM
guard.py         catches every exception, so that nothing raises into the agent
"""

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
