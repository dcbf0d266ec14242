"""The HTTP edge: middleware, error responses, the OpenAPI document and health."""
