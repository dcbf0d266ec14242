"""Tests of seals."""
