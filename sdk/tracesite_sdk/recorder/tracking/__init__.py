"""Record chains of tool calls that an agent reports itself."""
