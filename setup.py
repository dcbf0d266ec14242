"""The packages of the server: two of them are in other directories of the tree, so that Django also finds them installed."""

from setuptools import find_packages, setup

APPS = ["access_app", "messages_app", "traces_app", "tracesite"]

setup(
    packages=[
        *find_packages(include=[*APPS, *(f"{app}.*" for app in APPS)]),
        "tracesite.locale",
        "tracesite.templates",
    ],
    package_dir={"tracesite.locale": "locale", "tracesite.templates": "templates"},
)
