"""Run a node again from its snapshot, or a test on the answers of a recorded run."""
