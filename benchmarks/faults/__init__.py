"""Fault injection: kill parts of a running Tracesite and check that acknowledged data is complete and unique."""
