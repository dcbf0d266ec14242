"""What the agent did: steps, tools, tool calls and results; records, writes, imports and purge."""
