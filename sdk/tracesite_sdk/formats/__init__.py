"""One module per transcript format; each turns decoded JSON into records and knows no other format."""
