"""Run a node again from its snapshot, or a test from what a recorded run answers."""
