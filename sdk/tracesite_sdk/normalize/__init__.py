"""Give records one form, then redact them."""
