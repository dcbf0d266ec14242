"""Live streams: the stored events of a session, then each new one as it is committed; see docs/live.md.

A plain ASGI application (application, sockets, streams) forwards events from the event table. PostgreSQL notifies about new
events (listening), and one reader per process reads them for all clients (feeds, reading).
"""
