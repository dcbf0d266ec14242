"""Events of a run while it goes on: those of other monitors as ours, and the run that they make."""
