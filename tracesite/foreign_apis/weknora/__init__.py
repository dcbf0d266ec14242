"""WeKnora's API for its unchanged clients, over the same rows as the REST API; see docs/weknora.md."""
