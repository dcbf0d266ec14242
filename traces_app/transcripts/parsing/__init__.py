"""What the formats share: documents and what is packed in them, loose JSON, and shapes that many of them keep."""
