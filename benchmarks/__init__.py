"""What Tracesite costs, measured beside what plain psycopg on the same tables costs in the same run."""
