"""The routes of WeKnora's API, for its clients as they are: a view over the rows that the REST API serves; see docs/weknora.md."""
