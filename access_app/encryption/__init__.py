"""Encryption at rest: AES-256-GCM, a data key for each project, wrapped by a master key from outside the database.

`columns` lists what is encrypted, `envelope` is the form of an encrypted value, `master` finds the master key, `keys` keeps the
data keys, and `reading` opens what cursors read. See docs/security.md.
"""
