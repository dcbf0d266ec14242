"""The way of transcripts and spans into the tables."""
