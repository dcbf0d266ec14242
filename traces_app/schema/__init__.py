"""The records that every way in produces, and the registries of names in them. Without Django."""
