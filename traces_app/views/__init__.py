"""The REST API: thin views, one module a resource. They find the rows, call queries or writes, and answer."""
