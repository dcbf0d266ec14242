"""The work of agents: steps, tools, tool calls and results; records, writes, imports and purge."""
