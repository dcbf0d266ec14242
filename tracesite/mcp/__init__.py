"""The endpoint /mcp: the answers of /api/v1/read/ as tools of the Model Context Protocol, for coding agents."""
