"""The recorder: the part of Tracesite that runs in the process of an agent. Plain Python, without Django and a server.

recording.py     what an agent's code calls: Recorder, and the sessions, messages, steps and calls that it opens
decorating.py    the same as decorators, and what is open carried to other threads
wrapping.py      hooks around functions; enabling.py: objects that know of no recorder; answers.py: what models said
tracker.py       ToolCallChainTracker: chains.py keeps what is open, chain_files.py what is over
entries.py       what is handed to the worker
pipeline.py      queue -> sampling.py -> privacy.py -> sinks.py, on one worker
http_sink.py     to a server; spool.py: on the disk until it is there
ending.py        exit, fork, SIGTERM
guard.py         nothing raises into the agent
"""

from .privacy import Privacy
from .recording import Recorder, default_recorder, trace_tool
from .sampling import Sampling
from .scopes import Message, Scope, Session, Step, ToolCall
from .sinks import FanOutSink, JsonLinesSink, MemorySink, NullSink, Sink
from .tracker import ToolCallChainTracker
from .wrapping import wrap

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
