"""The recorder: the part of Tracesite that runs in the process of an agent, and never raises into it.

recording.py   Recorder, the interface for an agent's code
scopes.py      the sessions, messages, steps and calls that it opens
guard.py       catches every exception, so that nothing raises into the agent
capture/       values of the agent as entries, and hooks around its functions
snapshots/     contexts of nodes, in parts
instruments/   agents that do not know the recorder, and the clients of models
time_machine/  a node run again from its snapshot, and tests from what a recorded run answers
tracking/      chains of tool calls of agents that report them themselves
delivery/      entries -> sampling -> privacy -> sinks, on one worker thread; on the disk until a server has them
"""
