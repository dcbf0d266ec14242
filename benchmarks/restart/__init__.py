"""Restarts a Tracesite again and again under load, and looks whether any client saw it or anything was lost."""
