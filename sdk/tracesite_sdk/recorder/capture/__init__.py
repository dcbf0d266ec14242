"""Capture values of the agent as entries, and wrap its functions."""
