"""The form of the login, whose error is in our words: Django's speaks of staff accounts."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin.forms import AdminAuthenticationForm
from django.utils.translation import gettext_lazy


class LoginForm(AdminAuthenticationForm):
    error_messages: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # as in Django, where no stub says so
        **AdminAuthenticationForm.error_messages,
        "invalid_login": gettext_lazy(
            "The user name or the password is wrong, or the account may not log in here. Both are case-sensitive."
        ),
    }
