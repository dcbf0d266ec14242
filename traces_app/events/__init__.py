"""Agent events: decoded, projected onto runs, stored, and read as a feed."""
