"""Chains of tool calls of agents that report them themselves."""
