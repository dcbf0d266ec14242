"""Import transcripts and spans into the tables."""
