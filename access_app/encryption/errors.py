"""Why encrypted data cannot be read or written at the moment."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from access_app.errors import InvalidInput, Unavailable


class Locked(Unavailable):
    """The master key is missing or is another one, so that nothing of encrypted projects can be read or written."""

    default_code = "encryption_locked"
    default_message = _(
        "The data of this project is encrypted, and this server does not have its master key. The operator has to set "
        "TRACESITE_MASTER_KEY, TRACESITE_MASTER_KEY_FILE or TRACESITE_MASTER_KEY_COMMAND."
    )


class Damaged(Unavailable):
    """An encrypted value was changed or moved by other means than this application."""

    default_code = "encrypted_value_damaged"
    default_message = _("A stored value cannot be decrypted: it was changed or moved behind the back of Tracesite.")


class NotWhileEncrypted(InvalidInput):
    """Refuse a search or change for which the database would have to read encrypted columns."""

    default_code = "encrypted_project"
    default_message = _("This is not possible in a project whose data is encrypted.")
