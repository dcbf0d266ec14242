"""SQL shared by reads and writes: batches, JSON rows, keyset pagination and monthly partitions."""
