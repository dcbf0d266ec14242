"""Kills the parts of a running Tracesite, and looks whether anything that it acknowledged was lost, halved or doubled."""
