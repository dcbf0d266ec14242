"""Operations on stored traces: purge, integrity checks, closing of stale runs."""
