"""Documents and archives that hold transcripts."""
