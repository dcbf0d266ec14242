"""Answers to the questions of whoever finds out why a run failed, such as a coding agent: a module for each, which fit a budget of tokens."""
