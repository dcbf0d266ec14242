"""The commands that read a server: what failed and why, for people, and for agents that have a shell and no MCP."""
