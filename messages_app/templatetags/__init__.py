"""Template tags of the conversation pages."""
