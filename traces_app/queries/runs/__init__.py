"""What a run did and how it ended, in words and in order: pure functions, and what they read."""
