"""Parts that all readers of transcripts share: documents, entries, turns and times."""
