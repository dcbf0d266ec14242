"""The owner of the API tests sends callback messages, too."""

from tests.traces_app.views.conftest import owner

__all__ = ["owner"]
