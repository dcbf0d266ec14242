"""The users of the project, whatever model AUTH_USER_MODEL names."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User


def user_named(name: str) -> User | None:
    """Return the user with this user name; None if there is none."""
    model = get_user_model()
    user: User | None = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    return user
