"""What an agent does while it does it: events of other monitors as ours, and what events make of a run."""
