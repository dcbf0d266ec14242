"""The way of entries to a server or file: sampled, redacted, on the disk until they are delivered."""
