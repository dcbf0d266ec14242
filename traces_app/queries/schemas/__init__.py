"""Response schemas of the API for messages and their traces, a module for each noun; see messages_app.http.schemas."""
