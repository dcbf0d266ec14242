"""The ForeignApi of WeKnora, named in the setting FOREIGN_APIS."""

from tracesite.http.foreign_apis import ForeignApi

from .errors import BASE, error_body

WEKNORA = ForeignApi(
    base_paths=(BASE,),
    urls="tracesite.weknora.urls",
    error_body=error_body,
    live_route="tracesite.weknora.live.live_route",
)
