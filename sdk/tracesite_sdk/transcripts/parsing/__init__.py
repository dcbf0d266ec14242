"""Message shapes, logs and notations that several formats share."""
