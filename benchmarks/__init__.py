"""Benchmarks of Tracesite relative to a floor: plain psycopg on the same tables in the same run."""
