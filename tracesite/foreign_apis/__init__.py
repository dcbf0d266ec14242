"""APIs of other products that Tracesite serves beside its own, so that their clients work unchanged.

Each is a module or package with one `ForeignApi` (`tracesite/http/foreign_api.py`), which holds its URLs, routes and errors. To add
one, write its module and name its ForeignApi in FOREIGN_APIS of `access_app/conf.py`. Nothing else names the product.
"""
